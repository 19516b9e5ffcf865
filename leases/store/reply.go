package store

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Scripts answer with one string: a status word and numbers, separated by spaces. It is the same under RESP2 and RESP3, and whatever else
// comes is an error.

// errReply: Redis answered something that no script of ours answers.
var errReply = errors.New("unexpected reply")

// reply reads the words of an answer one after the other; the first fault sticks.
type reply struct {
	rest string
	err  error
}

func (r *reply) word() string {
	i := 0
	for i < len(r.rest) && r.rest[i] == ' ' {
		i++
	}
	j := i
	for j < len(r.rest) && r.rest[j] != ' ' {
		j++
	}
	if i == j && r.err == nil {
		r.err = fmt.Errorf("%w: it ends early", errReply)
	}
	w := r.rest[i:j]
	r.rest = r.rest[j:]
	return w
}

func (r *reply) int() int64 {
	w := r.word()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%w: %q is no number", errReply, clip(w))
	}
	return n
}

func (r *reply) partition() int32 { return int32(r.int()) }

// count reads the length of a list that follows: never more than what is left could hold.
func (r *reply) count() int {
	n := r.int()
	if r.err == nil && (n < 0 || n > int64(len(r.rest))) {
		r.err = fmt.Errorf("%w: a list of %d", errReply, n)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reply) partitions() []int32 {
	n := r.count()
	if n == 0 {
		return nil
	}
	ps := make([]int32, n)
	for i := range ps {
		ps[i] = r.partition()
	}
	return ps
}

func (r *reply) flag() bool { return r.int() != 0 }

// effects reads what every changing script begins its answer with.
func (r *reply) effects() Effects {
	e := Effects{Now: r.int(), NextDue: time.Duration(r.int()) * time.Millisecond}
	if e.NextDue < 0 {
		e.NextDue = -1
	}
	e.Freed, e.Lapsed, e.Died, e.Copies = int(r.int()), int(r.int()), int(r.int()), r.flag()
	e.Dirty = r.partitions()
	return e
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// Reasons are any text: in Redis they are "=" and base64, which has no space.
func packReason(s string) string { return "=" + base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unpackReason(s string) string {
	if s == "" || s[0] != '=' {
		return ""
	}
	b, err := base64.RawURLEncoding.DecodeString(s[1:])
	if err != nil {
		return ""
	}
	return string(b)
}
