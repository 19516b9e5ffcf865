package objectstore

import "context"

// LifecycleRule is one rule of a bucket: objects under Prefix are deleted by the store when they are Days old.
type LifecycleRule struct {
	ID      string
	Prefix  string // within the Store, as its keys are; "" covers everything
	Days    int    // 0: the rule does not delete objects by age
	Enabled bool
	// Archive is the storage class that it moves objects to when they are ArchiveDays old, where that is one that a GET cannot read from without
	// a restore of hours: GLACIER or DEEP_ARCHIVE. "": none.
	Archive     string
	ArchiveDays int
	// Native is the driver's own form of a rule that it has read. A driver writes a rule that has it back as it was, and looks at nothing
	// else of it: so rules that these fields do not describe survive. nil in rules that the caller made.
	Native any
}

// LifecycleStore is implemented by drivers of stores that delete by rules. It is about the bucket: where a Store is a prefix of one, prefixes
// of rules under it are cut and completed like keys, and rules elsewhere have a Native and a Prefix that no key of the Store has.
type LifecycleStore interface {
	// LifecycleRules gives all rules of the bucket, also those that others made; none is no error.
	LifecycleRules(ctx context.Context) ([]LifecycleRule, error)
	// PutLifecycleRules replaces all rules of the bucket. Where the store has no rules, both are ErrUnsupported.
	PutLifecycleRules(ctx context.Context, rules []LifecycleRule) error
}

// Archive says whether a GET refuses objects of a storage class until they have been restored.
func Archive(storageClass string) bool {
	return storageClass == "GLACIER" || storageClass == "DEEP_ARCHIVE"
}
