package compactor

func (c *Compactor) collector() {}

func (c *Compactor) gauges() {}
