package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// Prefix of environment variables.
const Prefix = "FOREBAY_"

// FileFlag is the name of the flag that names the file.
const FileFlag = "config"

// Source says where a value came from.
type Source string

// The sources, strongest first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "environment"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// EnvName gives the variable of a flag: "segment-bytes" is FOREBAY_SEGMENT_BYTES.
func EnvName(flag string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Settings are the values of the environment and of the file, by flag name.
type Settings struct {
	env  map[string]string // by variable
	file map[string]string // by flag name; lists joined as on the command line
	path string            // of the file, "" = none
}

// Load takes what environ ("NAME=value") has under the prefix and, where path is not "", the YAML file. Variables in ignore belong to
// somebody else.
func Load(environ []string, path string, ignore ...string) (*Settings, error) {
	s := &Settings{env: map[string]string{}, path: path}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, Prefix) && !slices.Contains(ignore, name) {
			s.env[name] = value
		}
	}
	if path == "" {
		return s, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if s.file, err = parseYAML(raw); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return s, nil
}

// parseYAML reads a flat mapping of flag names. Scalars keep their exact text, so that 010, 1e3 and 3d mean what the flag makes of
// them and not what YAML would.
func parseYAML(raw []byte) (map[string]string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	out := map[string]string{}
	if len(doc.Content) == 0 {
		return out, nil // empty or only comments
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return out, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want a mapping of flag names to values", root.Line)
	}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		if _, twice := out[key.Value]; twice {
			errs = append(errs, fmt.Errorf("line %d: %s is set twice", key.Line, key.Value))
			continue
		}
		value, err := settingOf(node)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %s: %w", node.Line, key.Value, err))
			continue
		}
		out[key.Value] = value
	}
	return out, errors.Join(errs...)
}

func settingOf(node *yaml.Node) (string, error) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", errors.New("has no value; leave the key out to get the default")
		}
		return node.Value, nil
	case yaml.SequenceNode:
		items := make([]string, 0, len(node.Content))
		for _, n := range node.Content {
			if n.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of plain values")
			}
			items = append(items, n.Value)
		}
		return kong.JoinEscaped(items, ','), nil
	}
	return "", errors.New("want a plain value or a list of them; keys are flag names and are not nested")
}

// Validate reports, as kong.Resolver, what no flag of the application answers to.
func (s *Settings) Validate(app *kong.Application) error {
	flags := map[string]bool{}
	var names, variables []string
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok && f.Name != "help" && !flags[f.Name] {
			flags[f.Name] = true
			names, variables = append(names, f.Name), append(variables, EnvName(f.Name))
		}
		return next(nil)
	})
	var errs []error
	for _, name := range sortedKeys(s.file) {
		if !flags[name] || name == FileFlag {
			errs = append(errs, fmt.Errorf("configuration file %s: unknown key %q%s", s.path, name, suggest(name, names)))
		}
	}
	for _, name := range sortedKeys(s.env) {
		if !slices.Contains(variables, name) {
			errs = append(errs, fmt.Errorf("environment: unknown variable %s%s", name, suggest(name, variables)))
		}
	}
	return errors.Join(errs...)
}

// Resolve gives, as kong.Resolver, the value of a flag that is not on the command line.
func (s *Settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if flag.Name == "help" {
		return nil, nil
	}
	if v, ok := s.env[EnvName(flag.Name)]; ok {
		return v, nil
	}
	if v, ok := s.file[flag.Name]; ok {
		return v, nil
	}
	return nil, nil
}

// Source says where the value of a flag came from that is not on the command line.
func (s *Settings) Source(flag string) Source {
	if _, ok := s.env[EnvName(flag)]; ok {
		return FromEnv
	}
	if _, ok := s.file[flag]; ok {
		return FromFile
	}
	return FromDefault
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
