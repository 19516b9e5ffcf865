package s3bucket

import (
	"context"
	"net/http"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.LifecycleStore = (*Store)(nil)

// opRules is no operation of objectstore.Store; it names requests about the bucket's rules in calls.
const opRules objectstore.Op = "rules"

// Ruler reads and writes all lifecycle rules of the bucket. Prefixes are full ones, and Native is as objectstore.LifecycleRule says.
type Ruler interface {
	Rules(ctx context.Context) ([]objectstore.LifecycleRule, error)
	PutRules(ctx context.Context, rules []objectstore.LifecycleRule) error
}

// LifecycleRules implements objectstore.LifecycleStore.
func (s *Store) LifecycleRules(ctx context.Context) ([]objectstore.LifecycleRule, error) {
	if err := s.begin(ctx, "read lifecycle rules", ""); err != nil {
		return nil, err
	}
	callCtx, call := begin(ctx, opRules)
	rules, err := s.opt.Rules.Rules(callCtx)
	if err != nil {
		if call.seen().fault.Code == "NoSuchLifecycleConfiguration" {
			return nil, nil
		}
		return nil, s.rulesFailure(ctx, call, "read lifecycle rules", err)
	}
	for i := range rules {
		rules[i].Prefix = s.cutRule(rules[i].Prefix)
	}
	return rules, nil
}

// cutRule gives a rule's prefix within the store: "" for a rule that covers all of it, and one that no key has for a rule elsewhere.
func (s *Store) cutRule(full string) string {
	switch {
	case strings.HasPrefix(full, s.opt.Prefix):
		return full[len(s.opt.Prefix):]
	case strings.HasPrefix(s.opt.Prefix, full):
		return ""
	}
	return "/" + full
}

// PutLifecycleRules implements objectstore.LifecycleStore.
func (s *Store) PutLifecycleRules(ctx context.Context, rules []objectstore.LifecycleRule) error {
	if err := s.begin(ctx, "write lifecycle rules", ""); err != nil {
		return err
	}
	full := make([]objectstore.LifecycleRule, len(rules))
	for i, r := range rules {
		if r.Native == nil {
			r.Prefix = s.opt.Prefix + r.Prefix
		}
		full[i] = r
	}
	callCtx, call := begin(ctx, opRules)
	if err := s.opt.Rules.PutRules(callCtx, full); err != nil {
		return s.rulesFailure(ctx, call, "write lifecycle rules", err)
	}
	return nil
}

// rulesFailure is failure; a store that does not know the request lacks the feature.
func (s *Store) rulesFailure(ctx context.Context, call *Call, what string, err error) error {
	if seen := call.seen(); seen.status == http.StatusMethodNotAllowed || seen.status == http.StatusNotFound && seen.fault.Code != "NoSuchBucket" {
		return outcome(opRules, what, "", false, explain(objectstore.ErrUnsupported, seen.status, seen.fault))
	}
	return s.failure(ctx, call, what, "", err)
}
