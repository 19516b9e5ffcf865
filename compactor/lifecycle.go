package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
)

// rulePrefix begins the IDs of our rules, and of no others.
const rulePrefix = "forebay-retention-"

// wantedRules are our rules: one a class, a day beyond it. Each prefix is a whole class and ends with its delimiter; level 0, snapshots and what
// is kept are under none of them.
func wantedRules() []objectstore.LifecycleRule {
	var out []objectstore.LifecycleRule
	for _, days := range classDays() {
		out = append(out, objectstore.LifecycleRule{ID: fmt.Sprintf("%s%dd", rulePrefix, days), Prefix: className(days) + "/", Days: days + 1, Enabled: true})
	}
	return out
}

// planRules gives the rules that the bucket should have: those of others as they are, in their order, and ours. changed says whether that
// differs from what it has.
func planRules(have []objectstore.LifecycleRule) (want []objectstore.LifecycleRule, changed bool) {
	ours := wantedRules()
	found := 0
	for _, r := range have {
		if !strings.HasPrefix(r.ID, rulePrefix) {
			want = append(want, r)
			continue
		}
		same := slices.ContainsFunc(ours, func(o objectstore.LifecycleRule) bool {
			return o.ID == r.ID && o.Prefix == r.Prefix && o.Days == r.Days && r.Enabled
		})
		if same {
			found++
		} else {
			changed = true
		}
	}
	return append(want, ours...), changed || found != len(ours)
}

// dangers names the rules of others that may delete what the metadata still refers to.
func dangers(have []objectstore.LifecycleRule) []string {
	var out []string
	for _, r := range have {
		if strings.HasPrefix(r.ID, rulePrefix) || !r.Enabled || r.Days <= 0 {
			continue
		}
		for _, p := range append(prefixes(), "snap/") {
			if strings.HasPrefix(p, r.Prefix) || strings.HasPrefix(r.Prefix, p) {
				out = append(out, r.ID)
				break
			}
		}
	}
	return out
}

// reconcileRules makes the bucket have our rules, and leaves those of others alone. Stores replace the whole set at once and know no
// condition: so it is read again just before it is written, and once more after. active is false where the bucket cannot have rules: then
// the collector deletes.
func (c *Compactor) reconcileRules(ctx context.Context) (active bool, err error) {
	outcome, err := c.putRules(ctx)
	if errors.Is(err, objectstore.ErrUnsupported) {
		outcome, err = "unsupported", nil
	}
	c.m.rules.WithLabelValues(outcome).Inc()
	return err == nil && outcome != "unsupported", err
}

func (c *Compactor) putRules(ctx context.Context) (outcome string, err error) {
	have, err := c.o.Lifecycle.LifecycleRules(ctx)
	if err != nil {
		return "failed", fmt.Errorf("read the bucket's lifecycle rules: %w", err)
	}
	if ids := dangers(have); len(ids) > 0 {
		c.o.Logger.Error("lifecycle rules of the bucket that are not Forebay's cover its objects, and may delete live data", "rules", ids)
	}
	want, changed := planRules(have)
	if !changed {
		return "unchanged", nil
	}
	if err := c.o.Lifecycle.PutLifecycleRules(ctx, want); err != nil {
		return "failed", fmt.Errorf("write the bucket's lifecycle rules: %w", err)
	}
	now, err := c.o.Lifecycle.LifecycleRules(ctx)
	if err != nil {
		return "failed", fmt.Errorf("read the bucket's lifecycle rules again: %w", err)
	}
	if _, changed := planRules(now); changed {
		return "failed", errors.New("the bucket's lifecycle rules are not what was written")
	}
	c.o.Logger.Info("lifecycle rules of the bucket written", "rules", len(want))
	return "changed", nil
}
