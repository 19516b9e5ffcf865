package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
)

// BenchmarkRelay publishes rows of 1 KiB with 1,000 keys through a node in this process, from a PostgreSQL that does not sync: what relay and
// tables cost, not what disks do.
func BenchmarkRelay(b *testing.B) {
	for _, keep := range []bool{false, true} {
		b.Run(fmt.Sprint("keep ", keep), func(b *testing.B) {
			bank := newBank(b, startNode(b))
			value := make([]byte, 1024)
			for n := 0; n < b.N; {
				var rs []client.Record
				for ; len(rs) < 1000 && n < b.N; n++ {
					rs = append(rs, client.Record{Key: fmt.Append(nil, "key-", n%1000), Value: value})
				}
				add(b, bank.box, bank.db, crashTopic, rs...)
			}
			opts := []outbox.RelayOption{outbox.WithBatch(250, 1<<20)}
			if keep {
				opts = append(opts, outbox.WithRetention(1<<40))
			}
			b.ResetTimer()
			r := run(b, bank.box, bank.db, bank.client, opts...)
			drained(b, bank.box, bank.db, r)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			r.stop()
		})
	}
}

// BenchmarkAdd adds rows of 1 KiB, ten in a transaction.
func BenchmarkAdd(b *testing.B) {
	o, db := newOutbox(b)
	rs := make([]client.Record, 10)
	for i := range rs {
		rs[i] = client.Record{Key: fmt.Append(nil, "key-", i), Value: make([]byte, 1024)}
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += len(rs) {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := o.Add(context.Background(), tx, "t", rs...); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
