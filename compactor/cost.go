package compactor

// Prices are list prices of an object store.
type Prices struct {
	GBMonth  float64 `json:"gbMonth"`  // of 10^9 bytes stored for a month
	Puts1000 float64 `json:"puts1000"` // of 1,000 PUT or LIST requests
	Gets1000 float64 `json:"gets1000"` // of 1,000 GET requests
}

// Cost is what a topic costs.
type Cost struct {
	Storage float64 `json:"storage"` // a month
	Writes  float64 `json:"writes"`  // of one PUT of each of its objects, in its share
	Gets    int64   `json:"gets"`    // requests of a full read
	Read    float64 `json:"read"`    // of a full read
}

// TotalCost is what the fabric costs: also what is dead in live objects.
type TotalCost struct {
	Storage float64 `json:"storage"`
	Gets    int64   `json:"gets"`
	Read    float64 `json:"read"`
}

// readGet is the size of the GETs of a sequential reader.
const readGet = 4 << 20

// Price gives the cost of each topic, in the order of Topics, and of everything.
func (r *Report) Price(p Prices) ([]Cost, TotalCost) {
	out := make([]Cost, len(r.Topics))
	total := TotalCost{Storage: float64(r.Bytes) / 1e9 * p.GBMonth}
	for i := range r.Topics {
		t := &r.Topics[i]
		c := &out[i]
		c.Storage = float64(t.Bytes) / 1e9 * p.GBMonth
		for _, l := range t.Levels {
			// Each index entry is a run of its own and takes a GET at least.
			c.Gets += int64(l.Batches) + l.Bytes/readGet
		}
		if r.Live > 0 {
			c.Writes = float64(r.Objects) * float64(t.Bytes) / float64(r.Live) / 1000 * p.Puts1000
		}
		c.Read = float64(c.Gets) / 1000 * p.Gets1000
		total.Gets += c.Gets
		total.Read += c.Read
	}
	return out, total
}
