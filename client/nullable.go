package client

import "encoding/json"

// Nullable is a setting that may be set to nothing, which JSON writes as null. A nil *Nullable leaves the setting alone.
type Nullable[T any] struct {
	value T
	valid bool
}

// Value sets to v.
func Value[T any](v T) *Nullable[T] { return &Nullable[T]{value: v, valid: true} }

// Null sets to nothing.
func Null[T any]() *Nullable[T] { return &Nullable[T]{} }

// MarshalJSON writes the value or null.
func (n *Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.valid {
		return []byte("null"), nil
	}
	return json.Marshal(n.value)
}
