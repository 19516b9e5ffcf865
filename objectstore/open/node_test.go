package open_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/internal/node"
	"github.com/forebaymq/forebay/internal/s3test"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/open"
)

var devKey = bytes.Repeat([]byte{7}, 32)

func nodeOn(t *testing.T, store string, etcd node.Etcd) *node.Node {
	t.Helper()
	n, err := node.New(node.Config{
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", ObjectStore: store, Etcd: etcd, Auth: node.Auth{DevKey: devKey},
		SegmentBytes: 256 << 10, Linger: 5 * time.Millisecond,
		// As a store in trouble has them, on top of the real one.
		StoreFaults: "seed=1;put:every=5:error=503;put:every=7:error=lost;get_range:every=4:error=truncated",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })
	return n
}

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Errorf("stop node: %v", err)
	}
}

func clientOf(t *testing.T, n *node.Node) *client.Client {
	t.Helper()
	token, err := auth.SignDev(devKey, auth.Claims{Tenant: "demo", Subject: "test", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New("http://"+n.Addr(), client.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestLog publishes, reads, restarts and reads again through a whole node, on a real S3 server, by both drivers.
func TestLog(t *testing.T) {
	server := s3test.Start(t)
	for name, url := range map[string]string{"s3": server.S3URL(server.Bucket()), "minio": server.MinioURL(server.Bucket())} {
		t.Run(name, func(t *testing.T) {
			etcd := node.Etcd{Dir: t.TempDir()}
			n := nodeOn(t, url, etcd)
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := publish(t, clientOf(t, n))
			check(t, clientOf(t, n), want)
			stop(t, n)
			again := nodeOn(t, url, etcd)
			if err := again.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			check(t, clientOf(t, again), want) // with a cold cache
			store, err := open.Open(t.Context(), url, open.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			page, err := store.List(t.Context(), "l0/", "", 1000)
			if err != nil || len(page.Objects) < 4 {
				t.Errorf("%d level-0 objects, %v: want several", len(page.Objects), err)
			}
			if left, err := store.List(t.Context(), "probe/", "", 10); err != nil || len(left.Objects) != 0 {
				t.Errorf("the start-up probe left %+v, %v", left.Objects, err)
			}
		})
	}
}

const partitions = 3

// publish sends records of about 10 KiB in batches, and gives what is where.
func publish(t *testing.T, c *client.Client) map[client.Position]string {
	t.Helper()
	n := partitions
	if _, _, err := c.PutTopic(t.Context(), "orders", client.TopicSettings{Partitions: &n}); err != nil {
		t.Fatal(err)
	}
	want := map[client.Position]string{}
	for batch := range 30 {
		var records []client.Record
		for i := range 10 {
			value := strings.Repeat(fmt.Sprintf("record %d of batch %d; ", i, batch), 500)
			records = append(records, client.Record{Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value), Kind: client.KindText})
		}
		got, err := c.Publish(t.Context(), "orders", records, nil)
		if err != nil {
			t.Fatalf("publish batch %d: %v", batch, err)
		}
		for i, at := range got.Records {
			if _, twice := want[at]; twice {
				t.Fatalf("two records at %+v", at)
			}
			want[at] = string(records[i].Value)
		}
	}
	return want
}

// check reads everything and compares.
func check(t *testing.T, c *client.Client, want map[client.Position]string) {
	t.Helper()
	seen := 0
	for p := range partitions {
		for offset := int64(0); ; {
			got, err := c.Read(t.Context(), "orders", p, client.ReadOptions{Offset: offset})
			if err != nil {
				t.Fatalf("read partition %d from %d: %v", p, offset, err)
			}
			for _, r := range got.Records {
				if value, known := want[client.Position{Partition: r.Partition, Offset: r.Offset}]; !known || value != string(r.Value) {
					t.Fatalf("partition %d offset %d: %d bytes, known: %v", r.Partition, r.Offset, len(r.Value), known)
				}
				seen++
			}
			if got.NextOffset >= got.Head {
				break
			}
			offset = got.NextOffset
		}
	}
	if seen != len(want) {
		t.Fatalf("read %d records, %d were acknowledged", seen, len(want))
	}
}

// TestNodeRefusesStore is case S4, through the node: it does not start on a store that would lose data or
// make it unreadable, and says what is wrong.
func TestNodeRefusesStore(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	driver := metadata.NewMemDriver(metadata.MemOptions{})
	defer driver.Close()
	for _, tc := range []struct {
		name string
		set  func(*s3fake.Server)
		want string
	}{
		{"conditions ignored", func(s *s3fake.Server) { s.IgnoreConditions = true }, "object store lacks conditional create (If-None-Match: *)"},
		{"metadata forgotten", func(s *s3fake.Server) { s.DropMetadata = true }, "object store lacks writers' IDs kept with objects"},
		{"conditions unknown", func(s *s3fake.Server) {
			s.SetScript(func(r s3fake.Request) s3fake.Fault {
				if r.Header.Get("If-None-Match") != "" {
					return s3fake.Fault{Status: 501, Code: "NotImplemented"}
				}
				return s3fake.Fault{}
			})
		}, "not supported by this object store"},
		{"archive rule", func(s *s3fake.Server) {
			s.SetRules(`<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>all to ice</ID><Filter><Prefix></Prefix></Filter>` +
				`<Status>Enabled</Status><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition></Rule></LifecycleConfiguration>`)
		}, `lifecycle rule "all to ice" moves objects under "" to GLACIER`},
		{"no bucket", func(s *s3fake.Server) { s.NoBucket = true }, `bucket "bucket" does not exist`},
	} {
		for driverName, url := range map[string]func(host string) string{
			"s3":    func(host string) string { return "s3://bucket?region=r&path-style=true&endpoint=http://" + host },
			"minio": func(host string) string { return "minio://" + host + "/bucket?secure=false" },
		} {
			t.Run(tc.name+" "+driverName, func(t *testing.T) {
				server := s3fake.New(t)
				tc.set(server)
				n, err := node.New(node.Config{
					Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Driver: driver, Auth: node.Auth{DevKey: devKey},
					ObjectStore: url(server.Listener.Addr().String()),
				})
				if err != nil {
					t.Fatal(err)
				}
				err = n.Start(t.Context())
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("start: %v, want an error that says %q", err, tc.want)
				}
				stopped, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_ = n.Stop(stopped) // answers as Start did
			})
		}
	}
}
