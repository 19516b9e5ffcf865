// Command forebay is the whole of Forebay: the embedded fabric, a node of a real one, and the tools of its users and operators.
//
// Exit status: 0 success, 1 failure (message on stderr), 2 wrong usage or settings. Data goes to stdout, everything else to stderr.
package main

import (
	"context"
	"io"
	"os"
)

// version is set by the linker.
var version = "dev"

// stdio is the world outside, for commands and for their tests.
type stdio struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	environ []string
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}))
}
