package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/api"
)

// onceCmd is a command that the client must not send twice, in a cluster either.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// run calls a script on a subscription that this process has opened in the present life.
func (s *Store) run(ctx context.Context, sc script, q *Queue, args ...any) (*reply, error) {
	e := s.edition.Load()
	s.opened.RLock()
	life := s.opened.in[q.ID]
	s.opened.RUnlock()
	if life != e.life {
		s.m.calls[sc][resultNotLoaded].Inc()
		return nil, &NotLoadedError{Subscription: q.ID}
	}
	return s.eval(ctx, e, sc, q, args)
}

// eval calls a script on a subscription, opened or not. args follow the flags and caps.
func (s *Store) eval(ctx context.Context, e *edition, sc script, q *Queue, args []any) (*reply, error) {
	if err := s.provide(ctx, e); err != nil {
		s.m.calls[sc][resultUnavailable].Inc()
		return nil, s.notReached(q, err)
	}
	prefix := s.prefix(q.ID)
	all := make([]any, 0, 9+len(args))
	all = append(all, "evalsha", e.sha[sc], 2, prefix+keyShards, s.groupPrefix(uint64(q.ID)%groups)+groupDue,
		q.flags(), q.MaxAttempts, q.MaxInFlight, q.MaxAckedAhead)
	all = append(all, args...)
	start := s.o.Clock.Now()
	cmd := redis.NewCmd(ctx, all...)
	err := s.c.Process(ctx, onceCmd{cmd})
	text, got := cmd.Val().(string)
	res := resultOK
	var r *reply
	switch {
	case err != nil:
		res, err = s.failed(ctx, e, sc, q, err)
	case !got:
		res, err = resultError, unavailable(fmt.Errorf("script %s: %w: a %T", sc, errReply, cmd.Val()))
	default:
		r = &reply{rest: text}
		switch status := r.word(); status {
		case "OK":
		case "NL":
			res, err = resultNotLoaded, &NotLoadedError{Subscription: q.ID}
			s.forget(q, e.life)
		case "AB":
			res, err = resultNotLoaded, &NotLoadedError{Subscription: q.ID, Partitions: r.partitions()}
		case "ST":
			res, err = resultStale, ErrStale
		default:
			res, err = resultError, unavailable(fmt.Errorf("script %s: %w: %q", sc, errReply, clip(text)))
		}
	}
	s.m.call(sc, res, s.o.Clock.Since(start))
	if err != nil {
		return nil, err
	}
	return r, nil
}

// finished gives the error of a reply that was read, as the caller may see it.
func (s *Store) finished(sc script, r *reply) error {
	if r.err == nil && strings.Trim(r.rest, " ") != "" {
		r.err = fmt.Errorf("%w: it goes on with %q", errReply, clip(r.rest))
	}
	if r.err == nil {
		return nil
	}
	s.m.calls[sc][resultError].Inc()
	s.o.Logger.Error("unexpected reply of Redis", "script", sc.String(), "error", r.err)
	return unavailable(fmt.Errorf("script %s: %w", sc, r.err))
}

// notReached is the error of a call that was never sent.
func (s *Store) notReached(q *Queue, err error) error {
	if errors.Is(err, errNewLife) {
		return &NotLoadedError{Subscription: q.ID}
	}
	return unavailable(err)
}

// failed says what an error of Redis or of the way there means.
func (s *Store) failed(ctx context.Context, e *edition, sc script, q *Queue, err error) (result, error) {
	var re redis.Error
	switch {
	case errors.Is(err, errNewLife):
		return resultNotLoaded, &NotLoadedError{Subscription: q.ID}
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		if err := s.renew(ctx, e); err != nil {
			return resultNoScript, s.notReached(q, err)
		}
		return resultNoScript, &NotLoadedError{Subscription: q.ID}
	case redis.HasErrorPrefix(err, "READONLY"):
		// The primary was demoted: what it had may be gone, and where the primary is now must be found out.
		s.raise(e, "the primary was demoted")
		return resultUnavailable, unavailable(err)
	case errors.As(err, &re):
		if transient(re.Error()) {
			return resultUnavailable, unavailable(err)
		}
		s.o.Logger.Error("a script failed", "script", sc.String(), "error", err)
		return resultError, unavailable(fmt.Errorf("script %s: %w", sc, err))
	case unsent(err):
		return resultUnavailable, unavailable(err)
	}
	return resultUnknown, &unknownError{unavailable(err)}
}

// transient: what Redis answers before a script has changed anything, and will not answer for ever.
func transient(text string) bool {
	for _, p := range []string{"LOADING", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS", "MOVED", "ASK ", "CROSSSLOT",
		"NOAUTH", "WRONGPASS", "NOPERM", "ERR max number of clients"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// unsent: no byte of the command left this process.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// unknownError is LEASES_UNAVAILABLE of a call that may have had its effect.
type unknownError struct{ err *api.Error }

func (e *unknownError) Error() string { return e.err.Error() }

func (e *unknownError) Unwrap() error { return e.err }

const retryAfter = time.Second

func unavailable(cause error) *api.Error {
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the lease store does not answer as it should; publishing and replay go on",
		RetryAfter: retryAfter, Cause: cause}
}

// forget marks a subscription as not opened, if it was in that life.
func (s *Store) forget(q *Queue, life uint64) {
	s.opened.Lock()
	defer s.opened.Unlock()
	if s.opened.in[q.ID] == life {
		delete(s.opened.in, q.ID)
	}
}

// flags are the letters by which scripts know what a queue is.
func (q *Queue) flags() string {
	var b [4]byte
	n := 0
	for _, f := range [...]struct {
		on     bool
		letter byte
	}{{q.Ordered, 'o'}, {q.Fair && !q.Ordered, 'f'}, {q.CopyDead, 'c'}, {q.SkipGaps, 's'}} {
		if f.on {
			b[n] = f.letter
			n++
		}
	}
	return string(b[:n])
}

// ms is a duration in whole milliseconds, rounded up: a visibility of 100 µs is not 0.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func hash(h uint64) string { return strconv.FormatUint(h, 36) }
