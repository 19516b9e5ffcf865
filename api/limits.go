package api

import "time"

// Limits of the REST contract. Sizes are in bytes and count the decoded request.
const (
	MaxNameLength        = 200
	MaxPartitions        = 10_000
	DefaultPartitions    = 8
	MaxRecordBytes       = 1 << 20  // key, value and headers of one record; a topic may lower it
	MaxRequestBytes      = 16 << 20 // one request body, after decompression
	MaxRecordsPerRequest = 100_000
	MaxKeyBytes          = 64 << 10
	MaxHeaders           = 64       // per record
	MaxHeaderBytes       = 32 << 10 // names and values of one record
	MaxIDBytes           = 256      // event ID
	MaxProducerIDBytes   = 200
	MaxTopicsPerRequest  = 100 // atomic publish
	MaxReadRecords       = 10_000
	DefaultReadRecords   = 1_000
	MaxReadBytes         = 16 << 20
	DefaultReadBytes     = 4 << 20
	MaxWait              = 30 * time.Second
	DefaultListLimit     = 100
	MaxListLimit         = 1000
	MaxTokenBytes        = 16 << 10
	DefaultRetention     = 72 * time.Hour
	MaxRetention         = 100 * 365 * 24 * time.Hour
	MaxDedupeWindow      = 24 * time.Hour
	MaxDeliverDelay      = 7 * 24 * time.Hour
	MaxGroupsPerTenant   = 10_000
)
