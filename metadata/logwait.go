package metadata

import (
	"sync"
	"sync/atomic"
)

// waiters are those who wait for changes of one shard's partitions.
type waiters struct {
	n  atomic.Int64 // how many, so that apply need not lock when there are none
	mu struct {
		sync.Mutex
		topics map[TopicID]map[int32]map[*waiter]struct{}
	}
}

// wholeTopic is the key of those who wait for a change of any partition. No state has such a partition, so that every change wakes them.
const wholeTopic = -1

type waiter struct {
	ch       chan struct{}
	offset   int64
	logStart int64
}

// add registers w. The caller holds the shard's read lock, so that no change slips between its look at the state and this.
func (ws *waiters) add(key PartitionKey, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.topics == nil {
		ws.mu.topics = map[TopicID]map[int32]map[*waiter]struct{}{}
	}
	parts := ws.mu.topics[key.Topic]
	if parts == nil {
		parts = map[int32]map[*waiter]struct{}{}
		ws.mu.topics[key.Topic] = parts
	}
	if parts[key.Partition] == nil {
		parts[key.Partition] = map[*waiter]struct{}{}
	}
	parts[key.Partition][w] = struct{}{}
	ws.n.Add(1)
}

// remove takes w away. It may be gone already.
func (ws *waiters) remove(key PartitionKey, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.mu.topics[key.Topic][key.Partition][w]; ok {
		ws.dropLocked(key, w)
	}
}

func (ws *waiters) dropLocked(key PartitionKey, w *waiter) {
	parts := ws.mu.topics[key.Topic]
	delete(parts[key.Partition], w)
	if len(parts[key.Partition]) == 0 {
		delete(parts, key.Partition)
	}
	if len(parts) == 0 {
		delete(ws.mu.topics, key.Topic)
	}
	ws.n.Add(-1)
}

// wake wakes those for whom a change matters. The caller holds the shard's write lock.
func (ws *waiters) wake(s *State, changed []PartitionKey) {
	if len(changed) == 0 || ws.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, key := range changed {
		parts := ws.mu.topics[key.Topic]
		if parts == nil {
			continue
		}
		if key.Partition < 0 {
			for p := range parts {
				ws.wakePartitionLocked(s, PartitionKey{key.Topic, p})
			}
			continue
		}
		ws.wakePartitionLocked(s, key)
		ws.wakePartitionLocked(s, PartitionKey{key.Topic, wholeTopic})
	}
}

func (ws *waiters) wakePartitionLocked(s *State, key PartitionKey) {
	list := ws.mu.topics[key.Topic][key.Partition]
	if len(list) == 0 {
		return
	}
	info, err := s.Partition(key.Topic, key.Partition)
	for w := range list {
		if err != nil || info.Head > w.offset || info.LogStart != w.logStart {
			close(w.ch)
			ws.dropLocked(key, w)
		}
	}
}

// wakeAll wakes everybody.
func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, parts := range ws.mu.topics {
		for _, list := range parts {
			for w := range list {
				close(w.ch)
				ws.n.Add(-1)
			}
		}
	}
	ws.mu.topics = nil
}

// Changed returns a channel that is closed when the partition's head rises above offset, its logStart moves, or its topic goes away. It
// is closed at once if that is so already, and may be closed without a change after a reload. release must be called.
func (l *Log) Changed(id TopicID, partition int32, offset int64) (ch <-chan struct{}, release func()) {
	s := l.shardOf(id)
	w := &waiter{ch: make(chan struct{}), offset: offset}
	s.mu.RLock()
	info, err := s.mu.state.Partition(id, partition)
	if err != nil || info.Head > offset {
		s.mu.RUnlock()
		close(w.ch)
		return w.ch, func() {}
	}
	w.logStart = info.LogStart
	key := PartitionKey{id, partition}
	s.waiters.add(key, w)
	s.mu.RUnlock()
	return w.ch, func() { s.waiters.remove(key, w) }
}

// TopicChanged returns a channel that is closed at the next change of any partition of the topic (a head rose, a logStart moved), or when the
// topic goes away; at once if it is not there. Take the channel, look, then wait: no change is missed. It may be closed without a
// change after a reload. release must be called.
func (l *Log) TopicChanged(id TopicID) (ch <-chan struct{}, release func()) {
	s := l.shardOf(id)
	w := &waiter{ch: make(chan struct{})}
	s.mu.RLock()
	if _, ok := s.mu.state.TopicByID(id); !ok {
		s.mu.RUnlock()
		close(w.ch)
		return w.ch, func() {}
	}
	key := PartitionKey{id, wholeTopic}
	s.waiters.add(key, w)
	s.mu.RUnlock()
	return w.ch, func() { s.waiters.remove(key, w) }
}
