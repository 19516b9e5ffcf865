package s3

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3bucket"
)

var _ s3bucket.Ruler = (*client)(nil)

// Rules implements s3bucket.Ruler.
func (c *client) Rules(ctx context.Context) ([]objectstore.LifecycleRule, error) {
	out, err := c.api.GetBucketLifecycleConfiguration(ctx, &awss3.GetBucketLifecycleConfigurationInput{Bucket: aws.String(c.bucket)})
	if err != nil {
		return nil, err
	}
	rules := make([]objectstore.LifecycleRule, len(out.Rules))
	for i, r := range out.Rules {
		rules[i] = objectstore.LifecycleRule{
			ID: aws.ToString(r.ID), Prefix: rulePrefix(r), Days: ruleDays(r), Enabled: r.Status == types.ExpirationStatusEnabled, Native: r,
		}
		rules[i].Archive, rules[i].ArchiveDays = ruleArchive(r)
	}
	return rules, nil
}

// rulePrefix gives the prefix of the objects that a rule is about, in whichever of three places it stands.
func rulePrefix(r types.LifecycleRule) string {
	switch {
	case r.Filter == nil:
		//lint:ignore SA1019 rules of the old form have it, and must be read for what they do
		return aws.ToString(r.Prefix)
	case r.Filter.And != nil:
		return aws.ToString(r.Filter.And.Prefix)
	}
	return aws.ToString(r.Filter.Prefix)
}

// tagged says whether a rule is about objects with tags. Ours have none.
func tagged(r types.LifecycleRule) bool {
	f := r.Filter
	return f != nil && (f.Tag != nil || f.And != nil && len(f.And.Tags) > 0)
}

// ruleArchive gives the first archive class that a rule moves objects such as ours to, and the age at which it does; a date is told as one day.
func ruleArchive(r types.LifecycleRule) (class string, days int) {
	for _, t := range r.Transitions {
		d := int(aws.ToInt32(t.Days))
		if t.Date != nil {
			d = 1
		}
		if objectstore.Archive(string(t.StorageClass)) && !tagged(r) && (class == "" || d < days) {
			class, days = string(t.StorageClass), d
		}
	}
	return class, days
}

// ruleDays gives the age at which a rule deletes objects such as ours. Rules about tags are not about ours, which have none. A date is
// told as one day: such a rule deletes everything, from that date on.
func ruleDays(r types.LifecycleRule) int {
	if tagged(r) {
		return 0
	}
	switch e := r.Expiration; {
	case e == nil:
		return 0
	case e.Date != nil:
		return 1
	default:
		return int(aws.ToInt32(e.Days))
	}
}

// PutRules implements s3bucket.Ruler.
func (c *client) PutRules(ctx context.Context, rules []objectstore.LifecycleRule) error {
	if len(rules) == 0 {
		_, err := c.api.DeleteBucketLifecycle(ctx, &awss3.DeleteBucketLifecycleInput{Bucket: aws.String(c.bucket)})
		return err
	}
	in := &awss3.PutBucketLifecycleConfigurationInput{Bucket: aws.String(c.bucket), LifecycleConfiguration: &types.BucketLifecycleConfiguration{}}
	if slices.ContainsFunc(rules, func(r objectstore.LifecycleRule) bool { return r.Native != nil }) {
		// A setting of the whole bucket beside the rules, which a write that does not name it would reset.
		now, err := c.api.GetBucketLifecycleConfiguration(ctx, &awss3.GetBucketLifecycleConfigurationInput{Bucket: aws.String(c.bucket)})
		if err != nil {
			return err
		}
		in.TransitionDefaultMinimumObjectSize = types.TransitionDefaultMinimumObjectSize(now.TransitionDefaultMinimumObjectSize)
	}
	for _, r := range rules {
		native, ok := r.Native.(types.LifecycleRule)
		if !ok {
			native = types.LifecycleRule{
				ID: aws.String(r.ID), Status: types.ExpirationStatusDisabled, Filter: &types.LifecycleRuleFilter{Prefix: aws.String(r.Prefix)},
				Expiration: &types.LifecycleExpiration{Days: aws.Int32(int32(r.Days))},
			}
			if r.Enabled {
				native.Status = types.ExpirationStatusEnabled
			}
		}
		in.LifecycleConfiguration.Rules = append(in.LifecycleConfiguration.Rules, native)
	}
	_, err := c.api.PutBucketLifecycleConfiguration(ctx, in)
	return err
}
