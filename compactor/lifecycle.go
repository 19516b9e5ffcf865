package compactor

import (
	"context"
)

// Rule is one lifecycle rule of a bucket: objects under Prefix are deleted by the store when they are Days old.
type Rule struct {
	ID      string
	Prefix  string // within the store, as its keys are; ends with a slash in rules of ours
	Days    int
	Enabled bool
	// Native is the store's own form of a rule that it has read, for rules that these fields do not describe. PutRules writes it back as it
	// was, and looks at nothing else of that rule. nil in rules that we make.
	Native any
}

// LifecycleStore is a bucket that deletes by rules.
type LifecycleStore interface {
	// Rules gives all rules of the bucket, also those that others made.
	Rules(ctx context.Context) ([]Rule, error)
	// PutRules replaces all rules of the bucket.
	PutRules(ctx context.Context, rules []Rule) error
}
