package leases

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

func TestRescueMargin(t *testing.T) {
	for _, tt := range []struct{ retention, interval, round, want time.Duration }{
		{100 * time.Hour, time.Minute, 2 * time.Minute, 10 * time.Hour},
		{time.Hour, time.Minute, 2 * time.Minute, 10 * time.Minute},
		{time.Hour, time.Minute, 12 * time.Minute, 24 * time.Minute},
		{5 * time.Minute, time.Minute, time.Hour, 150 * time.Second},
	} {
		if got := rescueMargin(tt.retention, tt.interval, tt.round); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestEndangered(t *testing.T) {
	const now = int64(1_000_000_000)
	age := func(d time.Duration) int64 { return now - d.Milliseconds() }
	hour := api.TopicConfig{Cleanup: api.CleanupDelete, RetentionTime: time.Hour}
	for _, tt := range []struct {
		name     string
		appended int64
		info     metadata.PartitionInfo
		config   api.TopicConfig
		want     bool
	}{
		{"young", age(45 * time.Minute), metadata.PartitionInfo{}, hour, false},
		{"about to go", age(51 * time.Minute), metadata.PartitionInfo{}, hour, true},
		{"kept", age(1000 * time.Hour), metadata.PartitionInfo{}, api.TopicConfig{Cleanup: api.CleanupDelete}, false},
		{"compacted", now, metadata.PartitionInfo{}, api.TopicConfig{Cleanup: api.CleanupCompact}, true},
		{"room left", now, metadata.PartitionInfo{Bytes: 700}, api.TopicConfig{Cleanup: api.CleanupDelete, RetentionBytes: 1000}, false},
		{"nearly full", now, metadata.PartitionInfo{Bytes: 800}, api.TopicConfig{Cleanup: api.CleanupDelete, RetentionBytes: 1000}, true},
	} {
		if got := endangered(tt.appended, now, tt.info, tt.config, time.Minute, 0); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
