package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/mattn/go-isatty"
)

// printJSON writes v on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printIndented writes JSON for people.
func printIndented(w io.Writer, raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("print answer: %w", err)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// printLine writes one JSON text as one line. A record's value keeps its line ends on the wire, and loses them here.
func printLine(w *bufio.Writer, raw json.RawMessage) error {
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return fmt.Errorf("print record: %w", err)
		}
		raw = b.Bytes()
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

// printList prints a list page by page: JSON lines, or a table with a row for each item. What fails at once prints nothing, not even the head.
func printList[T any](e *env, output, head string, page func(cursor string) (items []T, next string, err error), raw func(*T) json.RawMessage, row func(io.Writer, *T)) error {
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	if output == "text" {
		fmt.Fprintln(w, head)
	}
	for cursor, more := "", true; more; more = cursor != "" {
		items, next, err := page(cursor)
		switch {
		case err != nil && cursor == "":
			return err
		case err != nil:
			return errors.Join(w.Flush(), err)
		}
		cursor = next
		for i := range items {
			if output != "json" {
				row(w, &items[i])
			} else if err := printJSON(e.out, raw(&items[i])); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// deleteFlags are those of commands that delete something.
type deleteFlags struct {
	Output string `help:"text (nothing, where it succeeded), or json: what was deleted, on one line." enum:"text,json" default:"text"`
}

// deleted tells scripts of a success; kind is what it was, such as "topic".
func (f *deleteFlags) deleted(e *env, kind, name string) error {
	if f.Output != "json" {
		return nil
	}
	return printJSON(e.out, map[string]any{kind: name, "deleted": true})
}

// onTerminal says whether w is a terminal that a person looks at.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
