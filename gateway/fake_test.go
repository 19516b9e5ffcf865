package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// fabric is the rest of a node in memory. truth is what the log holds, view what this node has applied: a test changes truth as another
// node would, and Sync catches up.
type fabric struct {
	mu          sync.Mutex
	truth, view map[string]*metadata.Topic // by tenant/name
	parts       map[metadata.TopicID][]*part
	nextID      metadata.TopicID
	epochs      map[string]int64
	positions   []metadata.ProducerPosition
	changed     chan struct{} // closed and made anew at each append and change of topics
	fail        map[string]error
	hooks       map[string]func()
	calls       map[string]int
	appended    []*ingest.Request
	notReady    bool
	now         int64
}

type part struct {
	logStart int64
	records  []segment.Record // from logStart
}

func newFabric() *fabric {
	return &fabric{
		truth: map[string]*metadata.Topic{}, view: map[string]*metadata.Topic{}, parts: map[metadata.TopicID][]*part{},
		epochs: map[string]int64{}, changed: make(chan struct{}), fail: map[string]error{}, hooks: map[string]func(){}, calls: map[string]int{},
		now: 1_700_000_000_000,
	}
}

// enter counts a call and answers the error that a test has put in its way.
func (f *fabric) enter(method string) error {
	f.mu.Lock()
	f.calls[method]++
	err, hook := f.fail[method], f.hooks[method]
	f.mu.Unlock()
	if hook != nil {
		hook()
	}
	return err
}

func (f *fabric) failWith(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[method] = err
}

func (f *fabric) onCall(method string, hook func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[method] = hook
}

func (f *fabric) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *fabric) wakeLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// elsewhere creates or changes a topic as another node does: this node's view does not show it yet.
func (f *fabric) elsewhere(tenant, name string, change func(*api.TopicConfig)) *metadata.Topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	cfg := api.DefaultTopicConfig()
	if t := f.truth[tenant+"/"+name]; t != nil {
		cfg = t.Config
	}
	if change != nil {
		change(&cfg)
	}
	return f.putLocked(tenant, name, cfg)
}

func (f *fabric) putLocked(tenant, name string, cfg api.TopicConfig) *metadata.Topic {
	t := &metadata.Topic{Tenant: tenant, Name: name, Config: cfg, Created: f.now}
	if old := f.truth[tenant+"/"+name]; old != nil {
		t.ID, t.Version = old.ID, old.Version+1
	} else {
		f.nextID++
		t.ID = f.nextID
	}
	for len(f.parts[t.ID]) < cfg.Partitions {
		f.parts[t.ID] = append(f.parts[t.ID], &part{})
	}
	f.truth[tenant+"/"+name] = t
	return t
}

// topic creates or changes a topic that this node knows.
func (f *fabric) topic(name string, change func(*api.TopicConfig)) *metadata.Topic {
	t := f.elsewhere(tenantA, name, change)
	f.catchUp()
	return t
}

func (f *fabric) catchUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view = map[string]*metadata.Topic{}
	for k, t := range f.truth {
		f.view[k] = t
	}
	f.wakeLocked()
}

// drop deletes a topic elsewhere.
func (f *fabric) drop(tenant, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.truth[tenant+"/"+name]; t != nil {
		delete(f.parts, t.ID)
		delete(f.truth, tenant+"/"+name)
	}
}

func (f *fabric) Sync(ctx context.Context) error {
	if err := f.enter("Sync"); err != nil {
		return err
	}
	f.catchUp()
	return ctx.Err()
}

func (f *fabric) Topic(tenant, name string) (*metadata.Topic, error) {
	if err := f.enter("Topic"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.view[tenant+"/"+name]; t != nil {
		return t, nil
	}
	return nil, api.Errorf(api.CodeUnknownTopic, "topic %q does not exist", name)
}

func (f *fabric) Topics(tenant, after string, limit int) ([]*metadata.Topic, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*metadata.Topic
	for k, t := range f.view {
		if strings.HasPrefix(k, tenant+"/") && t.Name > after {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *metadata.Topic) int { return strings.Compare(a.Name, b.Name) })
	if len(out) > limit {
		return out[:limit], out[limit-1].Name
	}
	return out, ""
}

func (f *fabric) PartitionInfos(id metadata.TopicID) ([]metadata.PartitionInfo, error) {
	if err := f.enter("PartitionInfos"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ps, ok := f.parts[id]
	if !ok {
		return nil, api.Errorf(api.CodeUnknownTopic, "topic %d does not exist", id)
	}
	out := make([]metadata.PartitionInfo, len(ps))
	for i, p := range ps {
		out[i] = metadata.PartitionInfo{LogStart: p.logStart, Head: p.logStart + int64(len(p.records))}
	}
	return out, nil
}

func (f *fabric) PutTopic(ctx context.Context, tenant, name string, decide func(*metadata.Topic) (api.TopicConfig, error)) (*metadata.Topic, bool, error) {
	if err := f.enter("PutTopic"); err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	current := f.truth[tenant+"/"+name]
	cfg, err := decide(current)
	if err != nil {
		return nil, false, err
	}
	t := f.putLocked(tenant, name, cfg)
	f.view[tenant+"/"+name] = t
	f.wakeLocked()
	return t, current == nil, nil
}

func (f *fabric) DeleteTopic(ctx context.Context, tenant, name string) error {
	if err := f.enter("DeleteTopic"); err != nil {
		return err
	}
	f.mu.Lock()
	known := f.truth[tenant+"/"+name] != nil
	f.mu.Unlock()
	if !known {
		return api.Errorf(api.CodeUnknownTopic, "topic %q does not exist", name)
	}
	f.drop(tenant, name)
	f.catchUp()
	return nil
}

func (f *fabric) StartProducer(ctx context.Context, tenant, id string) (int64, error) {
	if err := f.enter("StartProducer"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epochs[tenant+"/"+id]++
	return f.epochs[tenant+"/"+id], nil
}

func (f *fabric) ProducerPositions(ctx context.Context, tenant, id, topic string) ([]metadata.ProducerPosition, error) {
	if err := f.enter("ProducerPositions"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []metadata.ProducerPosition
	for _, p := range f.positions {
		if topic == "" || p.Topic == topic {
			out = append(out, p)
		}
	}
	return out, nil
}

func (f *fabric) Available() error { return f.enter("Available") }

func (f *fabric) Status() metadata.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return metadata.Status{Ready: !f.notReady, Revision: 7}
}

func (f *fabric) Append(ctx context.Context, r *ingest.Request) (*ingest.Result, error) {
	if err := f.enter("Append"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &ingest.Result{}
	for _, t := range r.Topics {
		ps, ok := f.parts[t.Topic.ID]
		if !ok {
			return nil, api.Errorf(api.CodeUnknownTopic, "topic %d does not exist", t.Topic.ID)
		}
		var offsets []int64
		for i := range t.Records {
			if int(t.Partitions[i]) >= len(ps) {
				return nil, api.Errorf(api.CodeUnknownPartition, "no partition %d", t.Partitions[i])
			}
			p := ps[t.Partitions[i]]
			rec := t.Records[i]
			rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
			rec.Offset, rec.AppendTime = p.logStart+int64(len(p.records)), f.now
			p.records = append(p.records, rec)
			offsets = append(offsets, rec.Offset)
		}
		res.Topics = append(res.Topics, ingest.TopicResult{Offsets: offsets})
	}
	f.appended = append(f.appended, r)
	f.wakeLocked()
	return res, nil
}

// trim raises the logStart of a partition.
func (f *fabric) trim(id metadata.TopicID, partition int, logStart int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[id][partition]
	p.records = p.records[logStart-p.logStart:]
	p.logStart = logStart
	f.wakeLocked()
}

func (f *fabric) Read(ctx context.Context, r fetch.ReadRequest) (*fetch.ReadResult, error) {
	if err := f.enter("Read"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readLocked(r)
}

func (f *fabric) readLocked(r fetch.ReadRequest) (*fetch.ReadResult, error) {
	ps, ok := f.parts[r.TopicID]
	if !ok {
		return nil, api.Errorf(api.CodeUnknownTopic, "topic %d does not exist", r.TopicID)
	}
	if int(r.Partition) >= len(ps) {
		return nil, api.Errorf(api.CodeUnknownPartition, "no partition %d", r.Partition)
	}
	p := ps[r.Partition]
	head := p.logStart + int64(len(p.records))
	at := r.Offset
	switch {
	case at == fetch.Earliest:
		at = p.logStart
	case at == fetch.Latest:
		at = head
	case at < p.logStart || at > head:
		return nil, api.Errorf(api.CodeOffsetOutOfRange, "offset %d", at).With("logStart", p.logStart).With("head", head)
	}
	res := &fetch.ReadResult{NextOffset: at, Head: head, LogStart: p.logStart}
	size := int64(0)
	for _, rec := range p.records[at-p.logStart:] {
		if size += int64(len(rec.Value)); len(res.Records) == r.MaxRecords || len(res.Records) > 0 && size > r.MaxBytes {
			break
		}
		res.Records = append(res.Records, rec)
		res.NextOffset = rec.Offset + 1
	}
	return res, nil
}

func (f *fabric) ReadWait(ctx context.Context, r fetch.ReadRequest, wait fetch.Waiter) (*fetch.ReadResult, error) {
	if err := f.enter("ReadWait"); err != nil {
		return nil, err
	}
	for {
		f.mu.Lock()
		res, err := f.readLocked(r)
		changed := f.changed
		f.mu.Unlock()
		if err != nil || len(res.Records) > 0 {
			return res, err
		}
		r.Offset = res.NextOffset // "latest" is where it was when the wait began
		select {
		case <-changed:
		case <-wait:
			return res, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fabric) OffsetForTime(ctx context.Context, id metadata.TopicID, partition int32, ms int64) (int64, bool, error) {
	if err := f.enter("OffsetForTime"); err != nil {
		return 0, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ps, ok := f.parts[id]
	if !ok {
		return 0, false, api.Errorf(api.CodeUnknownTopic, "topic %d does not exist", id)
	}
	for _, r := range ps[partition].records {
		if r.AppendTime >= ms {
			return r.Offset, true, nil
		}
	}
	return 0, false, nil
}

// setNow is the append time of what comes.
func (f *fabric) setNow(ms int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = ms
}

func (f *fabric) requests() []*ingest.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.appended)
}

// Tenants of the tests. The token of a tenant is its name, with an optional scope after a slash.
const (
	tenantA = "acme"
	tenantB = "bell"
)

type fakeTokens struct{}

func (fakeTokens) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	tenant, scope, scoped := strings.Cut(token, "/")
	if tenant != tenantA && tenant != tenantB {
		return nil, api.Errorf(api.CodeUnauthenticated, "the token is not valid")
	}
	p := &auth.Principal{Tenant: tenant, Issuer: "test", Subject: "svc"}
	if scoped {
		p.Scopes = []string{scope}
	}
	return p, nil
}
