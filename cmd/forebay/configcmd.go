package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/forebaymq/forebay/internal/config"
)

type configCmd struct {
	Serve configServeCmd `cmd:"" help:"Of forebay serve, with the flags given here."`
	Dev   configDevCmd   `cmd:"" help:"Of forebay dev, with the flags given here."`
}

type configServeCmd struct {
	serveFlags
	Output string `help:"text or json." enum:"text,json" default:"text"`
}

func (c *configServeCmd) Run(e *env) error { return e.printSettings(c.Output) }

type configDevCmd struct {
	devFlags
	Output string `help:"text or json." enum:"text,json" default:"text"`
}

func (c *configDevCmd) Run(e *env) error { return e.printSettings(c.Output) }

func (e *env) printSettings(output string) error {
	values := e.settings.Effective(e.kong)
	shown := values[:0]
	for _, v := range values {
		if v.Name != "output" { // of this command, not of the one described
			shown = append(shown, v)
		}
	}
	if output == "json" {
		return printJSON(e.out, map[string][]config.Value{"settings": shown})
	}
	w := tabwriter.NewWriter(e.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM\tVARIABLE")
	for _, v := range shown {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, text(v.Value), v.Source, v.Env)
	}
	return w.Flush()
}

func text(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}
