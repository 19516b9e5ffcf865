package store

import (
	"context"
	"errors"
	"fmt"
)

// maxFresh is how many partitions one script looks at; more are looked at by further ones.
const maxFresh = 1000

// Acquire leases up to r.Max records: owed ones that are due first, oldest first, then new ones of r.Fresh in that order. Positions are of the
// partitions that were looked at: of all in Fresh when fewer than Max records were found. A gap in any of Fresh is reported, and then nothing is
// granted, unless the queue skips gaps.
func (s *Store) Acquire(ctx context.Context, q *Queue, r AcquireRequest) (*Acquired, error) {
	if r.Max < 1 {
		return nil, fmt.Errorf("acquire %d records", r.Max)
	}
	a, err := s.acquire(ctx, q, r, r.Fresh[:min(len(r.Fresh), maxFresh)])
	for rest := r.Fresh; err == nil && len(rest) > maxFresh; {
		rest = rest[maxFresh:]
		left := r
		for _, g := range a.Grants {
			left.Max -= int(g.Count)
		}
		if left.Max <= 0 || len(a.Gaps) > 0 {
			break
		}
		var more *Acquired
		if more, err = s.acquire(ctx, q, left, rest[:min(len(rest), maxFresh)]); err != nil && len(a.Grants) > 0 {
			return a, nil // what was granted is not lost for the trouble of the rest
		} else if err == nil {
			a.add(more)
		}
	}
	return a, err
}

func (s *Store) acquire(ctx context.Context, q *Queue, r AcquireRequest, fresh []Fresh) (*Acquired, error) {
	nonce, err := s.nonces.next()
	if err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	args := make([]any, 0, 4+3*len(fresh))
	args = append(args, r.Max, ms(r.Visibility), nonce, len(fresh))
	for _, f := range fresh {
		args = append(args, f.Partition, f.LogStart, f.Head)
	}
	rep, err := s.run(ctx, scriptAcquire, q, args...)
	if err != nil {
		var u *unknownError
		if errors.As(err, &u) {
			s.orphaned(q, nonce, r.Visibility)
		}
		return nil, err
	}
	a := &Acquired{Effects: rep.effects()}
	if n := rep.count(); n > 0 {
		a.Grants = make([]Grant, n)
	}
	for i := range a.Grants {
		a.Grants[i] = Grant{Partition: rep.partition(), Start: rep.int(), Count: int32(rep.int()), Attempt: int32(rep.int()), Nonce: rep.word(),
			Expires: rep.int()}
	}
	a.Positions = rep.positions()
	a.Absent = rep.partitions()
	for range rep.count() {
		a.Gaps = append(a.Gaps, Gap{Partition: rep.partition(), From: rep.int(), To: rep.int()})
	}
	if err := s.finished(scriptAcquire, rep); err != nil {
		s.orphaned(q, nonce, r.Visibility)
		return nil, err
	}
	return a, nil
}

func (a *Acquired) add(b *Acquired) {
	a.Grants = append(a.Grants, b.Grants...)
	a.Positions = append(a.Positions, b.Positions...)
	a.Absent = append(a.Absent, b.Absent...)
	a.Gaps = append(a.Gaps, b.Gaps...)
	a.Effects.add(&b.Effects)
}

// add joins the effects of a later call with those of an earlier one.
func (e *Effects) add(f *Effects) {
	e.Dirty = append(e.Dirty, f.Dirty...)
	e.Freed += f.Freed
	e.Lapsed += f.Lapsed
	e.Died += f.Died
	e.Copies = e.Copies || f.Copies
	e.NextDue, e.Now = f.NextDue, f.Now
}

func (r *reply) positions() []Position {
	n := r.count()
	if n == 0 {
		return nil
	}
	ps := make([]Position, n)
	for i := range ps {
		ps[i] = Position{Partition: r.partition(), Frontier: r.int(), Cursor: r.int(), Room: int32(r.int())}
	}
	return ps
}

// Positions says where shards stand; absent ones are not loaded.
func (s *Store) Positions(ctx context.Context, q *Queue, partitions []int32) (positions []Position, absent []int32, err error) {
	for len(partitions) > 0 {
		n := min(len(partitions), maxFresh)
		args := make([]any, n)
		for i, p := range partitions[:n] {
			args[i] = p
		}
		partitions = partitions[n:]
		r, err := s.run(ctx, scriptPositions, q, args...)
		if err != nil {
			return nil, nil, err
		}
		positions = append(positions, r.positions()...)
		absent = append(absent, r.partitions()...)
		if err := s.finished(scriptPositions, r); err != nil {
			return nil, nil, err
		}
	}
	return positions, absent, nil
}

// Admit makes new records of a keyed queue deliverable. moved is false when the cursor was elsewhere or the caps let nothing in; when they let in
// only some, the cursor stands behind those.
func (s *Store) Admit(ctx context.Context, q *Queue, r AdmitRequest) (moved bool, e *Effects, err error) {
	args := make([]any, 0, 4+3*len(r.Records))
	args = append(args, r.Partition, r.Cursor, r.Through, len(r.Records))
	for _, c := range r.Records {
		args = append(args, c.Offset, hash(c.KeyHash), c.DeliverAt)
	}
	rep, err := s.run(ctx, scriptAdmit, q, args...)
	if err != nil {
		return false, nil, err
	}
	effects := rep.effects()
	moved = rep.flag()
	return moved, &effects, s.finished(scriptAdmit, rep)
}

// Sweep finds what has lapsed or became due. What has lapsed on more than a thousand records is left to the next call: NextDue is 0 then.
func (s *Store) Sweep(ctx context.Context, q *Queue) (*Effects, error) {
	return s.effects(ctx, scriptSweep, q)
}

// effects calls a script that answers nothing else.
func (s *Store) effects(ctx context.Context, sc script, q *Queue, args ...any) (*Effects, error) {
	r, err := s.run(ctx, sc, q, args...)
	if err != nil {
		return nil, err
	}
	e := r.effects()
	return &e, s.finished(sc, r)
}
