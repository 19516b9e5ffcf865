package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/forebaymq/forebay/segment"
)

type segmentCmd struct {
	Dump segmentDumpCmd `cmd:"" help:"Verify a segment object and print what is in it."`
}

type segmentDumpCmd struct {
	File    string `arg:"" help:"The object as a file, or - for standard input."`
	Records bool   `help:"Print records, not only batches."`
	Values  bool   `help:"Print the values of records too; implies --records."`
	Output  string `help:"text, or json: one object a line." enum:"text,json" default:"text"`
}

func (c *segmentDumpCmd) Run(e *env) error {
	object, err := c.read(e)
	if err != nil {
		return fmt.Errorf("read segment: %w", err)
	}
	w := bufio.NewWriter(e.out)
	err = segment.Dump(w, object, segment.DumpOptions{JSON: c.Output == "json", Records: c.Records || c.Values, Values: c.Values})
	var corrupt *segment.CorruptError
	if errors.As(err, &corrupt) && corrupt.Object == "" {
		corrupt.Object = c.File
	}
	return errors.Join(err, w.Flush())
}

func (c *segmentDumpCmd) read(e *env) ([]byte, error) {
	if c.File == "-" {
		return io.ReadAll(e.in)
	}
	return os.ReadFile(c.File)
}
