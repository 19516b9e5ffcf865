// Package config gives every flag of the command line two twins: an environment variable and a key in a YAML file.
//
// The flag --segment-bytes is FOREBAY_SEGMENT_BYTES in the environment and segment-bytes in the file. Precedence: flag, environment,
// file, default. A key or a variable with the prefix that no command knows is an error that names it and what was perhaps meant; one that
// another command knows is fine, so that one file can serve a whole installation.
//
// Settings implements kong's Resolver and remembers where each value came from, which `forebay config` shows.
package config
