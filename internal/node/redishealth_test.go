package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRedisHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Int32 // 0 answers, 1 refuses, 2 hangs
		ping := func(ctx context.Context) error {
			switch state.Load() {
			case 1:
				return errors.New("no")
			case 2:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		c := Config{Registry: prometheus.NewRegistry()}.WithDefaults()
		h, err := watchRedis(t.Context(), ping, c)
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		check := func(step string, up bool) {
			t.Helper()
			synctest.Wait()
			families, err := c.Registry.Gather()
			if err != nil || len(families) != 1 {
				t.Fatal(families, err)
			}
			gauge := families[0].GetMetric()[0].GetGauge().GetValue()
			if (len(h.degraded()) == 0) != up || (gauge == 1) != up {
				t.Errorf("%s: degraded %v, gauge %v", step, h.degraded(), gauge)
			}
		}
		check("at first", true)
		state.Store(1)
		time.Sleep(redisProbeEvery)
		check("after it has gone", false)
		state.Store(0)
		time.Sleep(redisProbeEvery)
		check("after it has come back", true)
		state.Store(2)
		time.Sleep(redisProbeEvery + redisProbeTimeout)
		check("while it hangs", false)
	})
}
