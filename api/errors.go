package api

import (
	"errors"
	"fmt"
	"time"
)

// Code is a stable error code of the REST contract. Its text is API; the detail beside it is not.
type Code string

// The codes of the contract.
const (
	CodeInvalidRequest         Code = "INVALID_REQUEST"
	CodeUnauthenticated        Code = "UNAUTHENTICATED"
	CodeForbidden              Code = "FORBIDDEN"
	CodeResidencyViolation     Code = "RESIDENCY_VIOLATION"
	CodeNotFound               Code = "NOT_FOUND"
	CodeUnknownTopic           Code = "UNKNOWN_TOPIC"
	CodeUnknownSubscription    Code = "UNKNOWN_SUBSCRIPTION"
	CodeUnknownGroup           Code = "UNKNOWN_GROUP"
	CodeUnknownPartition       Code = "UNKNOWN_PARTITION"
	CodeMethodNotAllowed       Code = "METHOD_NOT_ALLOWED"
	CodeRequestTimeout         Code = "REQUEST_TIMEOUT"
	CodeStaleGeneration        Code = "STALE_GENERATION"
	CodeNotOwner               Code = "NOT_OWNER"
	CodeRetentionGap           Code = "RETENTION_GAP"
	CodeProducerFenced         Code = "PRODUCER_FENCED"
	CodeIncompatibleSchema     Code = "INCOMPATIBLE_SCHEMA"
	CodePartitionsCannotShrink Code = "PARTITIONS_CANNOT_SHRINK"
	CodeConflict               Code = "CONFLICT"
	CodeLeaseLost              Code = "LEASE_LOST"
	CodeTooLarge               Code = "TOO_LARGE"
	CodeUnsupportedMediaType   Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeOffsetOutOfRange       Code = "OFFSET_OUT_OF_RANGE"
	CodeSchemaViolation        Code = "SCHEMA_VIOLATION"
	CodeQuotaExceeded          Code = "QUOTA_EXCEEDED"
	CodeInternal               Code = "INTERNAL"
	CodeMetadataUnavailable    Code = "METADATA_UNAVAILABLE"
	CodeStorageUnavailable     Code = "STORAGE_UNAVAILABLE"
	CodeLeasesUnavailable      Code = "LEASES_UNAVAILABLE"
	CodeOverloaded             Code = "OVERLOADED"
	CodeOutcomeUnknown         Code = "OUTCOME_UNKNOWN"
)

// CodeInfo is what the contract fixes for one code.
type CodeInfo struct {
	Code   Code
	Status int    // HTTP status
	Title  string // short, human, constant per code
	// Retriable: the same request may succeed later and is known to have had no effect. OUTCOME_UNKNOWN is not retriable:
	// only a caller with a producer sequence may resend.
	Retriable bool
}

// Codes is the one table of codes, by code.
var Codes = map[Code]CodeInfo{
	CodeInvalidRequest:         {CodeInvalidRequest, 400, "The request is not valid", false},
	CodeUnauthenticated:        {CodeUnauthenticated, 401, "A valid token is required", false},
	CodeForbidden:              {CodeForbidden, 403, "The token does not permit this", false},
	CodeResidencyViolation:     {CodeResidencyViolation, 403, "The topic may not leave its region", false},
	CodeNotFound:               {CodeNotFound, 404, "There is nothing at this path", false},
	CodeUnknownTopic:           {CodeUnknownTopic, 404, "The topic does not exist", false},
	CodeUnknownSubscription:    {CodeUnknownSubscription, 404, "The subscription does not exist", false},
	CodeUnknownGroup:           {CodeUnknownGroup, 404, "The group does not exist", false},
	CodeUnknownPartition:       {CodeUnknownPartition, 404, "The partition does not exist", false},
	CodeMethodNotAllowed:       {CodeMethodNotAllowed, 405, "The path does not take this method", false},
	CodeRequestTimeout:         {CodeRequestTimeout, 408, "The request was not sent in time", true},
	CodeStaleGeneration:        {CodeStaleGeneration, 409, "The group has a newer generation", false},
	CodeNotOwner:               {CodeNotOwner, 409, "The member does not own the partition", false},
	CodeRetentionGap:           {CodeRetentionGap, 409, "Retention has overtaken the position", false},
	CodeProducerFenced:         {CodeProducerFenced, 409, "A newer session of this producer exists", false},
	CodeIncompatibleSchema:     {CodeIncompatibleSchema, 409, "The schema is not compatible", false},
	CodePartitionsCannotShrink: {CodePartitionsCannotShrink, 409, "Partitions cannot be removed", false},
	CodeConflict:               {CodeConflict, 409, "The request conflicts with the present state", false},
	CodeLeaseLost:              {CodeLeaseLost, 410, "The lease has lapsed or was superseded", false},
	CodeTooLarge:               {CodeTooLarge, 413, "The request is too large", false},
	CodeUnsupportedMediaType:   {CodeUnsupportedMediaType, 415, "The content type or encoding is not supported", false},
	CodeOffsetOutOfRange:       {CodeOffsetOutOfRange, 416, "The offset is outside the partition", false},
	CodeSchemaViolation:        {CodeSchemaViolation, 422, "A record violates the topic's schema", false},
	CodeQuotaExceeded:          {CodeQuotaExceeded, 429, "A quota of the tenant is used up", true},
	CodeInternal:               {CodeInternal, 500, "Something went wrong in the server", false},
	CodeMetadataUnavailable:    {CodeMetadataUnavailable, 503, "The metadata log has no quorum", true},
	CodeStorageUnavailable:     {CodeStorageUnavailable, 503, "The object store is not available", true},
	CodeLeasesUnavailable:      {CodeLeasesUnavailable, 503, "The lease store is not available", true},
	CodeOverloaded:             {CodeOverloaded, 503, "The node is at its limit", true},
	CodeOutcomeUnknown:         {CodeOutcomeUnknown, 504, "It is not known whether the request took effect", false},
}

// FieldError names one faulty place of a request body or query.
type FieldError struct {
	Pointer string `json:"pointer"` // RFC 6901 JSON pointer into the body, or the query parameter's name
	Detail  string `json:"detail"`  // what is wrong and what would be right
}

// Error is an error that a client of the REST API may see.
type Error struct {
	Code       Code
	Detail     string         // what happened and what the caller can do; not API
	Fields     []FieldError   // rendered as "errors"
	Extra      map[string]any // rendered as members of the problem document, e.g. logStart and head
	RetryAfter time.Duration  // rendered as Retry-After (whole seconds, at least 1) where the status is 429 or 503
	Cause      error          // never rendered; for the log
}

// Errorf makes an Error with a formatted detail. A %w operand becomes its cause and is shown in the detail as any other operand.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Detail: err.Error(), Cause: errors.Unwrap(err)}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// Unwrap gives the cause, which is never shown to a client.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, &Error{Code: c}) true for every error of code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// With adds a member to the problem document and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[name] = value
	return e
}

// CodeOf gives the code of err, or "" when err is not an *Error.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
