package gateway

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/wire"
)

// query holds the parameters of a request that have been checked for form: known, once, valid UTF-8.
type query struct{ values url.Values }

// parseQuery takes the query string apart. A parameter that the route does not know is refused by name: a typing error in "ofset" must
// not read from the default place.
func (rq *request) parseQuery(known ...string) (query, error) {
	raw := rq.Request().URL.RawQuery
	if raw == "" {
		return query{}, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, &api.Error{Code: api.CodeInvalidRequest, Detail: "the query string is not valid: percent-encode what is not a letter or a digit", Cause: err}
	}
	if wellKnown(values, known) {
		return query{values}, nil
	}
	var fields []api.FieldError
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch v := values[name]; {
		case !slices.Contains(known, name):
			detail := "this path takes no query parameters"
			if len(known) > 0 {
				detail = "there is no such query parameter here; there are " + strings.Join(known, ", ")
			}
			fields = append(fields, api.FieldError{Pointer: printable(name), Detail: detail})
		case len(v) > 1:
			fields = append(fields, api.FieldError{Pointer: name, Detail: "the parameter may be there once"})
		case !utf8.ValidString(v[0]):
			fields = append(fields, api.FieldError{Pointer: name, Detail: "the value is not valid UTF-8"})
		}
	}
	return query{}, &api.Error{Code: api.CodeInvalidRequest, Detail: "query parameter " + fields[0].Pointer + ": " + fields[0].Detail, Fields: fields}
}

// wellKnown says whether every parameter is known, there once, and valid UTF-8.
func wellKnown(values url.Values, known []string) bool {
	for name, v := range values {
		if len(v) != 1 || !slices.Contains(known, name) || !utf8.ValidString(v[0]) {
			return false
		}
	}
	return true
}

// printable shortens a name that a client made up, and drops what is not UTF-8.
func printable(s string) string {
	if len(s) > api.MaxNameLength {
		s = s[:api.MaxNameLength]
	}
	return strings.ToValidUTF8(s, "�")
}

func (q query) has(name string) bool { return len(q.values[name]) > 0 }

func (q query) get(name string) string { return q.values.Get(name) }

// intIn gives an integer within [low, high], or the default when the parameter is not there.
func (q query) intIn(name string, low, high, def int64) (int64, error) {
	if !q.has(name) {
		return def, nil
	}
	return wire.ParseIntIn(name, q.get(name), low, high)
}

// boolean gives true or false, or the default when the parameter is not there.
func (q query) boolean(name string, def bool) (bool, error) {
	if !q.has(name) {
		return def, nil
	}
	switch q.get(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, invalidField(name, "must be true or false")
}

// duration gives a duration, or 0 when the parameter is not there.
func (q query) duration(name string) (time.Duration, error) {
	if !q.has(name) {
		return 0, nil
	}
	d, err := wire.ParseDuration(q.get(name))
	if err != nil {
		return 0, invalidField(name, err.Error())
	}
	return d, nil
}

// pathParam gives a parameter of the path, decoded. echo leaves it as it was sent where the path has unusual encodings.
func (rq *request) pathParam(name string) (string, error) {
	v := rq.Param(name)
	if rq.Request().URL.RawPath != "" && strings.IndexByte(v, '%') >= 0 {
		d, err := url.PathUnescape(v)
		if err != nil {
			return "", &api.Error{Code: api.CodeInvalidRequest, Detail: name + ": the path is not validly encoded", Cause: err}
		}
		v = d
	}
	if !utf8.ValidString(v) {
		return "", api.Errorf(api.CodeInvalidRequest, "%s: the path is not valid UTF-8", name)
	}
	return v, nil
}

// topicParam gives the topic of the path, checked.
func (rq *request) topicParam() (string, error) {
	name, err := rq.pathParam("topic")
	if err != nil {
		return "", err
	}
	return name, api.CheckName("topic", name)
}

// partitionParam gives the partition of the path, checked for form.
func (rq *request) partitionParam() (int32, error) {
	p, err := rq.pathParam("partition")
	if err != nil {
		return 0, err
	}
	return wire.ParsePartition(p)
}
