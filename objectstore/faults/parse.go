package faults

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// Plan is a seed and the rules that draw from it.
type Plan struct {
	Seed  uint64
	Rules []Rule
}

// Parse reads a plan from text: items separated by ";".
//
//	seed=N                      the seed (default 0)
//	profile=s3                  the rules of S3Like
//	OPS:ITEM:ITEM...            a rule
//
// OPS are names separated by ",": get, get_range, get_tail, put, put_match, list, delete, stat, read (the three gets), * (all). ITEMs:
//
//	prefix=P                    keys that start with P (no ";" or ":" in it)
//	skip=N every=N p=0.1 count=N  which of the calls
//	latency=TERM+TERM           TERMs: 20ms, lognormal(P50,P99), size(PER_MIB)
//	error=KIND                  unavailable|500, throttled|503|429, 409, 412, 404, truncated, lost, unknown, late(DURATION)
//	truncate=F                  keep the fraction F of what is read
func Parse(text string) (Plan, error) {
	var p Plan
	var errs []error
	for _, item := range strings.Split(text, ";") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if err := p.add(item); err != nil {
			errs = append(errs, fmt.Errorf("fault rule %q: %w", item, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (p *Plan) add(item string) error {
	ops, rest, isRule := strings.Cut(item, ":")
	if !isRule {
		name, value, _ := strings.Cut(item, "=")
		switch {
		case name == "seed":
			var err error
			p.Seed, err = strconv.ParseUint(value, 0, 64)
			return err
		case item == "profile=s3":
			p.Rules = append(p.Rules, S3Like()...)
			return nil
		}
		return errors.New("want seed=N, profile=s3, or a rule with at least one item")
	}
	var r Rule
	if err := r.setOps(ops); err != nil {
		return err
	}
	for _, part := range strings.Split(rest, ":") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q: want NAME=VALUE", part)
		}
		if err := r.set(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := r.Validate(); err != nil {
		return err
	}
	p.Rules = append(p.Rules, r)
	return nil
}

func (r *Rule) setOps(list string) error {
	for _, name := range strings.Split(list, ",") {
		switch name {
		case "*":
			r.Ops = append(r.Ops, objectstore.Ops()...)
		case "read":
			r.Ops = append(r.Ops, reads()...)
		default:
			if !slices.Contains(objectstore.Ops(), objectstore.Op(name)) {
				return fmt.Errorf("unknown operation %q, want one of %v, read, *", name, objectstore.Ops())
			}
			r.Ops = append(r.Ops, objectstore.Op(name))
		}
	}
	slices.Sort(r.Ops)
	r.Ops = slices.Compact(r.Ops)
	return nil
}

func (r *Rule) set(name, value string) (err error) {
	switch name {
	case "prefix":
		r.Prefix = value
	case "skip":
		r.Skip, err = strconv.Atoi(value)
	case "every":
		r.Every, err = strconv.Atoi(value)
	case "count":
		r.Count, err = strconv.Atoi(value)
	case "p":
		r.Probability, err = strconv.ParseFloat(value, 64)
		if err == nil && r.Probability == 0 {
			err = errors.New("want above 0")
		}
	case "truncate":
		r.Truncate = true
		r.Keep, err = strconv.ParseFloat(value, 64)
	case "latency":
		r.Latency, err = parseLatency(value)
	case "error":
		r.Error, r.LateBy, err = parseKind(value)
	default:
		err = errors.New("unknown item, want prefix, skip, every, p, count, latency, error or truncate")
	}
	return err
}

func parseKind(value string) (Kind, time.Duration, error) {
	switch value {
	case "500":
		return Unavailable, 0, nil
	case "503", "429":
		return Throttled, 0, nil
	}
	if args, ok := call(value, string(Late), 1); ok {
		d, err := time.ParseDuration(args[0])
		return Late, d, err
	}
	k := Kind(value)
	if k == None || k == Late || allowedOps(k) == nil {
		return None, 0, fmt.Errorf("unknown kind %q", value)
	}
	return k, 0, nil
}

func parseLatency(value string) (Latency, error) {
	var l Latency
	for _, term := range strings.Split(value, "+") {
		var fields []*time.Duration
		args, isCall := call(term, "lognormal", 2)
		if isCall {
			fields = []*time.Duration{&l.P50, &l.P99}
		} else if args, isCall = call(term, "size", 1); isCall {
			fields = []*time.Duration{&l.PerMiB}
		} else {
			args, fields = []string{term}, []*time.Duration{&l.Base}
		}
		for i, f := range fields {
			if *f != 0 {
				return Latency{}, fmt.Errorf("%q: given twice", term)
			}
			d, err := time.ParseDuration(strings.TrimSpace(args[i]))
			if err != nil {
				return Latency{}, fmt.Errorf("%q: want a duration, lognormal(P50,P99) or size(PER_MIB): %w", term, err)
			}
			*f = d
		}
	}
	return l, nil
}

// call takes "name(a,b)" apart.
func call(text, name string, n int) ([]string, bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(text), name+"(")
	if !ok {
		return nil, false
	}
	if text, ok = strings.CutSuffix(text, ")"); !ok {
		return nil, false
	}
	args := strings.Split(text, ",")
	return args, len(args) == n
}

// String gives the rule as Parse reads it.
func (r Rule) String() string {
	var b strings.Builder
	if len(r.Ops) == 0 {
		b.WriteByte('*')
	}
	for i, op := range r.Ops {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(op))
	}
	item := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&b, ":"+format, args...)
		}
	}
	item(r.Prefix != "", "prefix=%s", r.Prefix)
	item(r.Skip != 0, "skip=%d", r.Skip)
	item(r.Every != 0, "every=%d", r.Every)
	item(r.Probability != 0, "p=%v", r.Probability)
	item(r.Count != 0, "count=%d", r.Count)
	item(r.Latency != Latency{}, "latency=%v", r.Latency)
	item(r.Error == Late, "error=late(%v)", r.LateBy)
	item(r.Error != None && r.Error != Late, "error=%s", r.Error)
	item(r.Truncate, "truncate=%v", r.Keep)
	return b.String()
}

// String gives the distribution as Parse reads it.
func (l Latency) String() string {
	var terms []string
	if l.Base != 0 {
		terms = append(terms, l.Base.String())
	}
	if l.P50 != 0 {
		terms = append(terms, fmt.Sprintf("lognormal(%v,%v)", l.P50, l.P99))
	}
	if l.PerMiB != 0 {
		terms = append(terms, fmt.Sprintf("size(%v)", l.PerMiB))
	}
	return strings.Join(terms, "+")
}
