package api

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// contract is the list of codes of the REST contract, with their statuses. Additions of ours stand below it.
var contract = map[Code]int{
	"INVALID_REQUEST": 400, "UNAUTHENTICATED": 401, "FORBIDDEN": 403, "RESIDENCY_VIOLATION": 403, "UNKNOWN_TOPIC": 404, "UNKNOWN_SUBSCRIPTION": 404,
	"UNKNOWN_GROUP": 404, "UNKNOWN_PARTITION": 404, "STALE_GENERATION": 409, "NOT_OWNER": 409, "RETENTION_GAP": 409, "PRODUCER_FENCED": 409,
	"INCOMPATIBLE_SCHEMA": 409, "PARTITIONS_CANNOT_SHRINK": 409, "CONFLICT": 409, "LEASE_LOST": 410, "TOO_LARGE": 413, "UNSUPPORTED_MEDIA_TYPE": 415,
	"OFFSET_OUT_OF_RANGE": 416, "SCHEMA_VIOLATION": 422, "QUOTA_EXCEEDED": 429, "METADATA_UNAVAILABLE": 503, "STORAGE_UNAVAILABLE": 503,
	"LEASES_UNAVAILABLE": 503, "OVERLOADED": 503, "OUTCOME_UNKNOWN": 504,
	// additions
	"NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "REQUEST_TIMEOUT": 408, "INTERNAL": 500,
}

func TestCodesAreTheContract(t *testing.T) {
	for code, status := range contract {
		info, ok := Codes[code]
		if !ok || info.Status != status || info.Code != code || info.Title == "" {
			t.Errorf("%s: %+v, want status %d", code, info, status)
		}
	}
	for code, info := range Codes {
		if _, ok := contract[code]; !ok {
			t.Errorf("%s is not in the contract", code)
		}
		if info.Retriable != (info.Status == 429 || info.Status == 503 || info.Status == 408) {
			t.Errorf("%s: retriable = %v with status %d", code, info.Retriable, info.Status)
		}
	}
}

func TestErrorsKeepCodeAndCause(t *testing.T) {
	err := fmt.Errorf("publish: %w", Errorf(CodeStorageUnavailable, "put: %w", io.ErrUnexpectedEOF).With("n", 1))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
	if !errors.Is(err, &Error{Code: CodeStorageUnavailable}) || errors.Is(err, &Error{Code: CodeOverloaded}) {
		t.Error("Is does not go by code")
	}
	if CodeOf(err) != CodeStorageUnavailable || CodeOf(io.EOF) != "" {
		t.Errorf("CodeOf: %q, %q", CodeOf(err), CodeOf(io.EOF))
	}
}
