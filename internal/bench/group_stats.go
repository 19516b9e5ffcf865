package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// samples are the metrics of a node, by name and labels as they are written in Prometheus' text format.
type samples map[string]float64

// parseSamples reads Prometheus' text format, without buckets of histograms.
func parseSamples(r io.Reader) (samples, error) {
	out := samples{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' || strings.Contains(line, `_bucket{`) {
			continue
		}
		name, value := line, ""
		if i := strings.LastIndexByte(line, '}'); i >= 0 {
			name, value = line[:i+1], strings.TrimSpace(line[i+1:])
		} else {
			name, value, _ = strings.Cut(line, " ")
		}
		value, _, _ = strings.Cut(value, " ") // a time may follow
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %q: %w", line, err)
		}
		out[name] = n
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return out, nil
}

// sum adds up the series of a name whose labels contain a text.
func (s samples) sum(name, label string) (sum float64) {
	for k, v := range s {
		if rest, ok := strings.CutPrefix(k, name); ok && (rest == "" || rest[0] == '{') && strings.Contains(rest, label) {
			sum += v
		}
	}
	return sum
}

// gauges are where the machine's parts are asked how they do. Both may be absent.
type gauges struct {
	ops   string    // of the node's ops port, "" = none
	redis *redisOps // nil = none
}

// reading is what they said at one moment.
type reading struct {
	at        time.Time
	node      samples
	redis     map[string]float64
	clientCPU float64 // seconds
}

func (g *gauges) read(ctx context.Context) (*reading, error) {
	r := &reading{node: samples{}, redis: map[string]float64{}}
	if g.ops != "" {
		err := g.get(ctx, "/metrics", func(body io.Reader) (err error) {
			r.node, err = parseSamples(body)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if g.redis != nil {
		var err error
		if r.redis, err = g.redis.figures(ctx); err != nil {
			return nil, err
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return nil, fmt.Errorf("read the client's own CPU time: %w", err)
	}
	r.clientCPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	r.at = time.Now()
	return r, nil
}

func (g *gauges) get(ctx context.Context, path string, read func(body io.Reader) error) error {
	url := strings.TrimRight(g.ops, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read metrics: %s answers %s", url, resp.Status)
	}
	return read(resp.Body)
}

// NodeMemory is what the node and Redis hold, in bytes.
type NodeMemory struct {
	RSS   int64 `json:"rss"`   // of the node's process
	Heap  int64 `json:"heap"`  // live, after a collection
	Redis int64 `json:"redis"` // used by Redis
}

// memory makes the node collect its garbage first, by asking for a profile of what is live.
func (g *gauges) memory(ctx context.Context) (NodeMemory, error) {
	if g.ops != "" {
		err := g.get(ctx, "/debug/pprof/heap?gc=1", func(body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		})
		if err != nil {
			return NodeMemory{}, err
		}
	}
	r, err := g.read(ctx)
	if err != nil {
		return NodeMemory{}, err
	}
	return NodeMemory{
		RSS: int64(r.node["process_resident_memory_bytes"]), Heap: int64(r.node["go_memstats_heap_alloc_bytes"]), Redis: int64(r.redis["used_memory"]),
	}, nil
}

func (m NodeMemory) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("node %.1f MiB (heap %.1f), Redis %.1f MiB", float64(m.RSS)/mib, float64(m.Heap)/mib, float64(m.Redis)/mib)
}

// Cost is what a phase cost, a second of it. CPU is in cores: 1 = one core busy all the time. What was not asked for is 0.
type Cost struct {
	NodeCPU       float64 `json:"nodeCPU"`
	RedisCPU      float64 `json:"redisCPU"`
	ClientCPU     float64 `json:"clientCPU"`
	NodeAllocMB   float64 `json:"nodeAllocMBPerSecond"`
	RedisCommands float64 `json:"redisCommandsPerSecond"` // those within scripts among them
	Generations   float64 `json:"generationsPerSecond"`
	Appends       float64 `json:"commitAppendsPerSecond"` // of offsets: commits of one group that came together are one
	Committed     float64 `json:"commitsPerSecond"`       // as the node counts them
	Transactions  float64 `json:"metadataTransactionsPerSecond"`
	Puts          float64 `json:"putsPerSecond"`
	Gets          float64 `json:"getsPerSecond"`
}

// since gives the cost between two readings.
func (r *reading) since(from *reading) Cost {
	took := r.at.Sub(from.at).Seconds()
	if took <= 0 {
		return Cost{}
	}
	node := func(name, label string) float64 { return (r.node.sum(name, label) - from.node.sum(name, label)) / took }
	store := func(name string) float64 { return (r.redis[name] - from.redis[name]) / took }
	return Cost{
		NodeCPU: node("process_cpu_seconds_total", ""), RedisCPU: store("used_cpu_user") + store("used_cpu_sys"), ClientCPU: (r.clientCPU - from.clientCPU) / took,
		NodeAllocMB: node("go_memstats_alloc_bytes_total", "") / 1e6, RedisCommands: store("total_commands_processed"),
		Generations: node("forebay_groups_generation_seconds_count", ""), Appends: node(appendsMetric, ""),
		Committed: node("forebay_groups_commits_total", `result="ok"`), Transactions: node("forebay_metadata_transactions_total", ""),
		Puts: node(putMetric, `op="put`), Gets: node(putMetric, `op="get`),
	}
}

// appendsMetric counts the appends of offsets.
const appendsMetric = "forebay_groups_commits_together_count"

func (c Cost) String() string {
	return fmt.Sprintf("CPU node %.2f, Redis %.2f, client %.2f cores; node allocates %.1f MB/s; Redis %.0f commands/s; %.1f metadata transactions/s, %.1f PUTs/s, %.1f GETs/s",
		c.NodeCPU, c.RedisCPU, c.ClientCPU, c.NodeAllocMB, c.RedisCommands, c.Transactions, c.Puts, c.Gets)
}
