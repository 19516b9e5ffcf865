package config

import (
	"fmt"
	"reflect"

	"github.com/alecthomas/kong"
)

// Value is one setting as it came out.
type Value struct {
	Name   string `json:"name"`  // of the flag
	Env    string `json:"env"`   // of the variable
	Value  any    `json:"value"` // redacted where the flag is a secret
	Source Source `json:"source"`
}

// Redacted stands for the value of a secret.
const Redacted = "(redacted)"

// Effective lists the flags of the selected command, with what they came out as and from where. A flag tagged `secret:""` is
// redacted, of one tagged `secret:"url"` the credentials are; hidden flags are listed when they are set.
func (s *Settings) Effective(ctx *kong.Context) []Value {
	onLine := map[string]bool{}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			onLine[p.Flag.Name] = true
		}
	}
	var out []Value
	for _, flag := range ctx.Flags() {
		if flag.Name == "help" || flag.Name == FileFlag {
			continue
		}
		v := Value{Name: flag.Name, Env: EnvName(flag.Name), Source: s.Source(flag.Name), Value: printable(flag.Target)}
		if onLine[flag.Name] {
			v.Source = FromFlag
		}
		if flag.Tag.Has("secret") && !flag.Target.IsZero() {
			v.Value = Redacted
			if s, ok := flag.Target.Interface().(string); ok && flag.Tag.Get("secret") == secretURL {
				v.Value = RedactURL(s)
			}
		}
		if flag.Hidden && v.Source == FromDefault {
			continue
		}
		out = append(out, v)
	}
	return out
}

// printable keeps numbers and booleans for JSON and writes everything else as its text.
func printable(v reflect.Value) any {
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.String:
		return v.Interface()
	case reflect.Slice:
		if v.Len() == 0 {
			return []string{}
		}
		return v.Interface()
	}
	return fmt.Sprint(v.Interface())
}
