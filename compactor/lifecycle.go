package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
		if !strings.HasPrefix(r.ID, rulePrefix) && r.Enabled && r.Days > 0 && slices.ContainsFunc(append(prefixes(), "snap/"), func(p string) bool { return covers(&r, p) }) {
			out = append(out, r.ID)
		}
	}
	return out
}

// covers says whether a rule is about objects under a prefix of ours.
func covers(r *objectstore.LifecycleRule, prefix string) bool {
	return strings.HasPrefix(prefix, r.Prefix) || strings.HasPrefix(r.Prefix, prefix)
}

// ArchiveRuleError says that a rule of the bucket moves objects of ours to where they cannot be read.
type ArchiveRuleError struct {
	Rule   objectstore.LifecycleRule
	Covers []string // prefixes of ours
}

func (e *ArchiveRuleError) Error() string {
	r := &e.Rule
	return fmt.Sprintf("the bucket's lifecycle rule %q moves objects under %q to %s when they are %d days old, from where they cannot be read without a restore. "+
		"That covers %s: narrow the rule to another prefix, or disable it", r.ID, r.Prefix, r.Archive, r.ArchiveDays, strings.Join(e.Covers, ", "))
}

// archived finds the first rule that moves to an archive what readers may still ask for. Objects of a retention class are gone a day after its
// days; those of level 0, of the longest class and snapshots live for as long as they are needed.
func archived(have []objectstore.LifecycleRule) *ArchiveRuleError {
	for _, r := range have {
		if !r.Enabled || r.Archive == "" {
			continue
		}
		e := &ArchiveRuleError{Rule: r}
		for _, p := range append(prefixes(), "snap/") {
			age, ok := classAge(strings.TrimSuffix(p, "/"))
			if covers(&r, p) && !(ok && time.Duration(r.ArchiveDays)*day > age+day) {
				e.Covers = append(e.Covers, p)
			}
		}
		if len(e.Covers) > 0 {
			return e
		}
	}
	return nil
}

// CheckRules looks for a rule of the bucket that would make data unreadable: an *ArchiveRuleError. Another error says that the rules cannot be
// read now. A store without rules is all right.
func CheckRules(ctx context.Context, l objectstore.LifecycleStore) error {
	have, err := l.LifecycleRules(ctx)
	if errors.Is(err, objectstore.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the bucket's lifecycle rules: %w", err)
	}
	if e := archived(have); e != nil {
		return e
	}
	return nil
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
	if e := archived(have); e != nil {
		c.o.Logger.Error("a lifecycle rule of the bucket archives objects of Forebay, which then cannot be read", "rule", e.Rule.ID, "class", e.Rule.Archive, "error", e)
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
