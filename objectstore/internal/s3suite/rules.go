package s3suite

import (
	"errors"
	"strings"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

const foreignRules = `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
	`<Rule><ID>tiering &amp; more</ID><Filter><And><Prefix>logs/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter><Status>Enabled</Status>` +
	`<Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition>` +
	`<Expiration><Days>400</Days></Expiration></Rule>` +
	`<Rule><ID>old form</ID><Prefix>old/</Prefix><Status>Disabled</Status><Expiration><Days>3</Days></Expiration></Rule>` +
	`<Rule><ID>dated</ID><Filter><Prefix></Prefix></Filter><Status>Enabled</Status><Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration></Rule>` +
	`<Rule><ID>uploads</ID><Filter></Filter><Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>` +
	`<Rule><ID>cold</ID><Filter><Prefix>a</Prefix></Filter><Status>Enabled</Status><Transition><Days>200</Days><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>` +
	`<Transition><Days>30</Days><StorageClass>GLACIER_IR</StorageClass></Transition><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>` +
	`</LifecycleConfiguration>`

// rules: the rules of others are read for what they do, and survive ours with everything that they say.
func rules(s *suite) {
	store, ok := s.driver().(objectstore.LifecycleStore)
	if !ok {
		s.Fatal("the driver knows no lifecycle rules")
	}
	if have, err := store.LifecycleRules(s.ctx); err != nil || len(have) != 0 {
		s.Fatalf("rules of a bucket without: %+v, %v", have, err)
	}
	s.server.SetRules(foreignRules)
	have, err := store.LifecycleRules(s.ctx)
	s.want(err, nil, false, "read rules")
	want := []objectstore.LifecycleRule{
		{ID: "tiering & more", Prefix: "logs/", Enabled: true},
		{ID: "old form", Prefix: "old/", Days: 3},
		{ID: "dated", Days: 1, Enabled: true},
		{ID: "uploads", Enabled: true},
		{ID: "cold", Prefix: "a", Enabled: true, Archive: "GLACIER", ArchiveDays: 90},
	}
	if len(have) != len(want) {
		s.Fatalf("rules %+v, want %+v", have, want)
	}
	for i, r := range have {
		if r.Native == nil || r.ID != want[i].ID || r.Prefix != want[i].Prefix || r.Days != want[i].Days || r.Enabled != want[i].Enabled ||
			r.Archive != want[i].Archive || r.ArchiveDays != want[i].ArchiveDays {
			s.Errorf("rule %d: %+v, want %+v", i, r, want[i])
		}
	}
	ours := objectstore.LifecycleRule{ID: "forebay-1d <&>", Prefix: "ttl=1d/", Days: 2, Enabled: true}
	s.want(store.PutLifecycleRules(s.ctx, append(have, ours)), nil, false, "write rules")
	for _, part := range []string{
		"<StorageClass>STANDARD_IA</StorageClass>", "<StorageClass>GLACIER</StorageClass>", "<Days>90</Days>", "<Value>v</Value>", "<ID>tiering &amp; more</ID>",
		"<Prefix>old/</Prefix>", "<Date>2030-01-01T00:00:00Z</Date>", "<DaysAfterInitiation>7</DaysAfterInitiation>", "<Prefix>ttl=1d/</Prefix>",
	} {
		if !strings.Contains(s.server.Rules(), part) {
			s.Errorf("the rules written have no %s: %s", part, s.server.Rules())
		}
	}
	again, err := store.LifecycleRules(s.ctx)
	s.want(err, nil, false, "read rules again")
	if len(again) != 6 || again[5].ID != ours.ID || again[5].Prefix != ours.Prefix || again[5].Days != 2 || !again[5].Enabled || again[4].ArchiveDays != 90 {
		s.Errorf("rules again: %+v", again)
	}
	s.want(store.PutLifecycleRules(s.ctx, nil), nil, false, "write no rules")
	if have, err := store.LifecycleRules(s.ctx); err != nil || len(have) != 0 {
		s.Errorf("rules after all were removed: %+v, %v", have, err)
	}
	for _, f := range []s3fake.Fault{{Status: 501, Code: "NotImplemented"}, {Status: 405, Code: "MethodNotAllowed"}} {
		s.server.SetScript(on("LIFECYCLE", 1<<30, f))
		_, err := store.LifecycleRules(s.ctx)
		s.want(err, objectstore.ErrUnsupported, false, "read rules of a store without")
		s.want(store.PutLifecycleRules(s.ctx, []objectstore.LifecycleRule{ours}), objectstore.ErrUnsupported, false, "write rules of a store without")
	}
	s.server.SetScript(on("LIFECYCLE", 1<<30, s3fake.Fault{Status: 404, Code: "NoSuchBucket"}))
	if _, err := store.LifecycleRules(s.ctx); err == nil || errors.Is(err, objectstore.ErrUnsupported) || !mentions(err, s3fake.Bucket) {
		s.Errorf("read rules of an absent bucket: %v", err)
	}
}
