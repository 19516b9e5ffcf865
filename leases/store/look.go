package store

import "context"

// Stats gives the statistics of every loaded shard, in no order. It is enough that any process has opened the subscription: only its ID is looked at.
func (s *Store) Stats(ctx context.Context, q *Queue) ([]ShardStats, error) {
	r, err := s.eval(ctx, s.edition.Load(), scriptStats, q, nil)
	if err != nil {
		return nil, err
	}
	out := make([]ShardStats, r.count())
	for i := range out {
		out[i] = ShardStats{Partition: r.partition(), Frontier: r.int(), Cursor: r.int(), InFlight: r.int(), AckedAhead: r.int(), Owed: r.int(),
			Delayed: r.int(), Waiting: r.int(), DeadLetters: r.int(), Skipped: r.int(), OldestOffset: r.int(), OldestDelayed: r.int()}
	}
	return out, s.finished(scriptStats, r)
}

// Peek says what would be handed out next: owed records that are due, then new ones of fresh (not of a keyed queue), then those due later.
func (s *Store) Peek(ctx context.Context, q *Queue, max int, fresh []Fresh) ([]Peeked, error) {
	if max < 1 {
		return nil, nil
	}
	args := make([]any, 0, 2+2*len(fresh))
	args = append(args, max, len(fresh))
	for _, f := range fresh {
		args = append(args, f.Partition, f.Head)
	}
	r, err := s.run(ctx, scriptPeek, q, args...)
	if err != nil {
		return nil, err
	}
	out := make([]Peeked, r.count())
	for i := range out {
		out[i] = Peeked{Partition: r.partition(), Offset: r.int(), Attempt: int32(r.int()), Due: r.int()}
	}
	return out, s.finished(scriptPeek, r)
}

// Audit compares counters with what is there and puts right what disagrees: what nothing leads to is owed at once, what belongs to nothing is
// removed.
func (s *Store) Audit(ctx context.Context, q *Queue) (Repairs, *Effects, error) {
	r, err := s.run(ctx, scriptAudit, q)
	if err != nil {
		return Repairs{}, nil, err
	}
	e := r.effects()
	rep := Repairs{Redelivered: int(r.int()), Dangling: int(r.int()), Counters: int(r.int())}
	return rep, &e, s.finished(scriptAudit, r)
}
