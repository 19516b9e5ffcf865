package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/api"
)

// fault makes an error of code about one place of the request. pointer is an RFC 6901 pointer into the body ("" = the whole body), or
// the name of a query parameter or header.
func fault(code api.Code, pointer, format string, args ...any) *api.Error {
	pointer = shorten(pointer)
	detail := fmt.Sprintf(format, args...)
	e := &api.Error{Code: code, Detail: detail, Fields: []api.FieldError{{Pointer: pointer, Detail: detail}}}
	if pointer != "" {
		e.Detail = pointer + ": " + detail
	}
	return e
}

// maxPointer bounds what an answer repeats of a body: names may be megabytes long, and nesting thousands deep.
const maxPointer = 1024

// shorten cuts a long pointer to the nearest place above it.
func shorten(pointer string) string {
	if len(pointer) <= maxPointer {
		return pointer
	}
	return pointer[:max(strings.LastIndexByte(pointer[:maxPointer+1], '/'), 0)]
}

func invalid(pointer, format string, args ...any) *api.Error {
	return fault(api.CodeInvalidRequest, pointer, format, args...)
}

func tooLarge(pointer, format string, args ...any) *api.Error {
	return fault(api.CodeTooLarge, pointer, format, args...)
}

// faults collects several faults of one request, up to maxFaults: a body of a million unknown members gets no answer of their size.
type faults []api.FieldError

const maxFaults = 50

func (f *faults) add(pointer, format string, args ...any) {
	if len(*f) == maxFaults {
		return
	}
	*f = append(*f, api.FieldError{Pointer: shorten(pointer), Detail: fmt.Sprintf(format, args...)})
}

// err returns nil without faults, or one INVALID_REQUEST with all of them.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	texts := make([]string, len(f))
	for i, fe := range f {
		texts[i] = fe.Pointer + ": " + fe.Detail
	}
	return &api.Error{Code: api.CodeInvalidRequest, Detail: strings.Join(texts, "; "), Fields: f}
}

// appendPointer appends one reference token to an RFC 6901 pointer, escaping "~" and "/".
func appendPointer(pointer, token string) string {
	return pointer + string(jsontext.Pointer("").AppendToken(token))
}

// jsonFault turns what the JSON decoder said into an INVALID_REQUEST with a pointer to the place. Errors that are ours already pass
// unchanged.
func jsonFault(err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours
	}
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		e := invalid(string(syn.JSONPointer), "%s (at byte %d)", syntaxText(syn), syn.ByteOffset)
		e.Cause = err
		return e
	}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		e := invalid(string(sem.JSONPointer), "%s", semanticText(sem))
		e.Cause = err
		return e
	}
	e := invalid("", "the body is not one complete JSON text")
	e.Cause = err
	return e
}

func syntaxText(e *jsontext.SyntacticError) string {
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return "the member is there twice"
	case e.Err == nil:
		return "the JSON is not valid"
	default:
		return strings.TrimPrefix(e.Err.Error(), "jsontext: ")
	}
}

func semanticText(e *json.SemanticError) string {
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "there is no such member"
	case e.Err != nil && e.JSONKind == 0:
		return e.Err.Error()
	case e.GoType != nil:
		return wanted(e.GoType.Kind())
	default:
		return "the value cannot stand here"
	}
}

// wanted says which JSON stands for a Go type.
func wanted(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Slice, reflect.Array:
		return "must be an array"
	case reflect.Struct, reflect.Map:
		return "must be an object"
	case reflect.Float32, reflect.Float64:
		return "must be a number"
	default:
		return "a value of another type must stand here"
	}
}
