package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	Output string `help:"text or json." enum:"text,json" default:"text"`
}

func (c *versionCmd) Run(e *env) error {
	v := struct {
		Version  string `json:"version"`
		Revision string `json:"revision,omitempty"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if c.Output == "json" {
		return printJSON(e.out, v)
	}
	_, err := fmt.Fprintf(e.out, "forebay %s %s %s\n", v.Version, v.Go, v.Platform)
	return err
}
