package api

import "time"

// Cleanup says how old records of a topic go away.
type Cleanup string

// The cleanup policies.
const (
	CleanupDelete        Cleanup = "delete"
	CleanupCompact       Cleanup = "compact"
	CleanupCompactDelete Cleanup = "compact,delete"
)

// Compacts says whether records are removed by key.
func (c Cleanup) Compacts() bool { return c == CleanupCompact || c == CleanupCompactDelete }

// Deletes says whether records are removed by age and size.
func (c Cleanup) Deletes() bool { return c == CleanupDelete || c == CleanupCompactDelete }

// TopicConfig is the decoded configuration of a topic. The zero value is not valid; see DefaultTopicConfig.
type TopicConfig struct {
	Partitions         int
	RetentionTime      time.Duration // 0 = keep
	RetentionBytes     int64         // per partition, stored bytes; 0 = no bound
	Cleanup            Cleanup
	MinCompactionLag   time.Duration
	TombstoneRetention time.Duration
	Residency          string // region, or "" for none
	Mirror             bool
	MaxRecordBytes     int           // <= MaxRecordBytes
	DedupeWindow       time.Duration // 0 = event IDs are kept, not compared
	SchemaSubject      string
	SchemaMode         string // "enforce" or "off"
}

// DefaultTopicConfig is what PUT /v1/topics/{topic} with an empty body creates.
func DefaultTopicConfig() TopicConfig {
	return TopicConfig{
		Partitions:         DefaultPartitions,
		RetentionTime:      DefaultRetention,
		Cleanup:            CleanupDelete,
		TombstoneRetention: 24 * time.Hour,
		MaxRecordBytes:     MaxRecordBytes,
		SchemaMode:         "off",
	}
}
