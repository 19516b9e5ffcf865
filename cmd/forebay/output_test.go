package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestClientCommandsPrintJSON: scripts may ask every command that talks to a server for JSON.
func TestClientCommandsPrintJSON(t *testing.T) {
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, node := range parser.Model.Leaves(false) {
		flags := map[string]*kong.Flag{}
		for _, group := range node.AllFlags(false) {
			for _, f := range group {
				flags[f.Name] = f
			}
		}
		if flags["server"] == nil {
			continue
		}
		seen++
		if f := flags["output"]; f == nil || !slices.Contains(f.EnumSlice(), "json") {
			t.Errorf("%s has no --output json", node.FullPath())
		}
	}
	if seen < 25 {
		t.Errorf("only %d commands talk to a server", seen)
	}
}

// TestListsThatFailPrintNothing, not even the head of their table.
func TestListsThatFailPrintNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusForbidden, `{"code":"FORBIDDEN","detail":"no"}`)
	}))
	defer s.Close()
	for _, args := range [][]string{{"topics", "list"}, {"groups", "list"}, {"subscriptions", "list", "--topic", "t"}, {"dlq", "list", "s", "--topic", "t"}} {
		if r := forebay(t, []string{"FOREBAY_SERVER=" + s.URL, "FOREBAY_TOKEN=x"}, "", args...); r.code != exitFailure || r.out != "" || !strings.Contains(r.err, "FORBIDDEN: no") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestDeletesTellScripts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	environ := []string{"FOREBAY_SERVER=" + s.URL, "FOREBAY_TOKEN=x"}
	for want, args := range map[string][]string{
		`{"deleted":true,"topic":"a"}`:        {"topics", "delete", "a"},
		`{"deleted":true,"subscription":"a"}`: {"subscriptions", "delete", "a", "--topic", "t"},
		`{"deleted":true,"group":"a"}`:        {"groups", "delete", "a"},
	} {
		if r := forebay(t, environ, "", args...); r != (result{}) {
			t.Errorf("%v: %+v", args, r)
		}
		if r := forebay(t, environ, "", append(args, "--output", "json")...); r != (result{out: want + "\n"}) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// TestUsageErrorsNameTheHelp of the command that was meant, as far as it was understood.
func TestUsageErrorsNameTheHelp(t *testing.T) {
	for want, args := range map[string][]string{
		"forebay":             {"frobnicate"},
		"forebay groups":      {"groups", "frobnicate"},
		"forebay groups seek": {"groups", "seek", "g", "--nope"},
		"forebay dlq redrive": {"dlq", "redrive", "s", "--topic", "t"}, // the grammar does not see this one
		"forebay token":       {"token"},
	} {
		if r := forebay(t, nil, "", args...); r.code != exitUsage || !strings.HasSuffix(r.err, "\nTry "+want+" --help.\n") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
