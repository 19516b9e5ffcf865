package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/leases/journal"
)

// DeadLetters lists dead letters by the time of their death and then by partition and offset. after is where the last page ended, "" to begin;
// the cursor answered is "" at the end. Letters that die meanwhile come at the end.
func (s *Store) DeadLetters(ctx context.Context, q *Queue, after string, limit int) ([]DeadLetter, string, error) {
	return s.listDead(ctx, q, "list", after, limit)
}

// PendingCopies gives dead letters that wait for their copy, longest waiting first.
func (s *Store) PendingCopies(ctx context.Context, q *Queue, max int) ([]DeadLetter, error) {
	ds, _, err := s.listDead(ctx, q, "copies", "", max)
	return ds, err
}

func (s *Store) listDead(ctx context.Context, q *Queue, op, after string, limit int) ([]DeadLetter, string, error) {
	score, id, err := parseCursor(after)
	if err != nil {
		return nil, "", err
	}
	r, err := s.run(ctx, scriptDead, q, op, score, id, max(limit, 0))
	if err != nil {
		return nil, "", err
	}
	ds := make([]DeadLetter, r.count())
	for i := range ds {
		ds[i].Partition = r.partition()
		offset := r.int()
		ds[i].Pointer = r.pointer()
		ds[i].Offset = offset
	}
	cursor := r.cursor()
	return ds, cursor, s.finished(scriptDead, r)
}

// A cursor is "time-partition-offset" of the last one seen; in Redis that is a score and "partition:offset".
func parseCursor(c string) (score, id string, err error) {
	if c == "" {
		return "", "", nil
	}
	score, rest, _ := strings.Cut(c, "-")
	partition, offset, _ := strings.Cut(rest, "-")
	t, err1 := strconv.ParseInt(score, 10, 64)
	p, err2 := strconv.ParseUint(partition, 10, 31)
	o, err3 := strconv.ParseInt(offset, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || t < 0 || o < 0 {
		return "", "", fmt.Errorf("%w: %q", ErrCursor, clip(c))
	}
	return strconv.FormatInt(t, 10), strconv.FormatUint(p, 10) + ":" + pad(o), nil
}

func (r *reply) cursor() string {
	score, id := r.word(), r.word()
	if r.err != nil || score == "-" {
		return ""
	}
	partition, offset, _ := strings.Cut(id, ":")
	o, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%w: cursor %q", errReply, clip(id))
		return ""
	}
	return score + "-" + partition + "-" + strconv.FormatInt(o, 10)
}

// Redrive makes at most max of the selected dead letters deliverable again, with their attempts at 0. next is where the last call ended, "" to
// begin; the cursor answered is "" at the end. Letters that have expired stay where they are.
func (s *Store) Redrive(ctx context.Context, q *Queue, sel Selection, max int, next string) (done int, cursor string, e *Effects, err error) {
	var args []any
	targets := sel.Targets
	from := 0
	if sel.All {
		score, id, err := parseCursor(next)
		if err != nil {
			return 0, "", nil, err
		}
		args = []any{"redrive", 1, sel.Before, score, id, max}
	} else {
		if next != "" {
			if from, err = strconv.Atoi(next); err != nil || from < 0 {
				return 0, "", nil, fmt.Errorf("%w: %q", ErrCursor, clip(next))
			}
		}
		from = min(from, len(targets))
		targets = targets[from:min(len(targets), from+max)]
		args = append([]any{"redrive", 0, sel.Before}, targetArgs(targets)...)
	}
	r, err := s.run(ctx, scriptDead, q, args...)
	if err != nil {
		return 0, "", nil, err
	}
	effects := r.effects()
	done, cursor = int(r.int()), r.cursor()
	if to := from + len(targets); !sel.All && to < len(sel.Targets) {
		cursor = strconv.Itoa(to)
	}
	return done, cursor, &effects, s.finished(scriptDead, r)
}

// Discard forgets the selected dead letters: those of Targets, or at most max of All that died at or before Before; until it answers less than
// max, there may be more.
func (s *Store) Discard(ctx context.Context, q *Queue, sel Selection, max int) (int, *Effects, error) {
	args := append([]any{"discard", 0, sel.Before}, targetArgs(sel.Targets)...)
	if sel.All {
		args = []any{"discard", 1, sel.Before, max}
	}
	r, err := s.run(ctx, scriptDead, q, args...)
	if err != nil {
		return 0, nil, err
	}
	e := r.effects()
	n := int(r.int())
	return n, &e, s.finished(scriptDead, r)
}

// CountDead counts the selected dead letters.
func (s *Store) CountDead(ctx context.Context, q *Queue, sel Selection) (int64, error) {
	args := append([]any{"count", 0, sel.Before}, targetArgs(sel.Targets)...)
	if sel.All {
		args = []any{"count", 1, sel.Before}
	}
	r, err := s.run(ctx, scriptDead, q, args...)
	if err != nil {
		return 0, err
	}
	n := r.int()
	return n, s.finished(scriptDead, r)
}

// Buried says that the copies of these are committed: they are settled now.
func (s *Store) Buried(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return s.effects(ctx, scriptDead, q, append([]any{"buried"}, targetArgs(ts)...)...)
}

// MarkExpired says that retention has deleted the records of these.
func (s *Store) MarkExpired(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return s.effects(ctx, scriptDead, q, append([]any{"expired"}, targetArgs(ts)...)...)
}

// MarkCopied says that copies of these, which were settled before, are in the dead-letter topic.
func (s *Store) MarkCopied(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return s.effects(ctx, scriptDead, q, append([]any{"copied"}, targetArgs(ts)...)...)
}

func targetArgs(ts []journal.Target) []any {
	args := make([]any, 0, 1+2*len(ts))
	args = append(args, len(ts))
	for _, t := range ts {
		args = append(args, t.Partition, pad(t.Offset))
	}
	return args
}
