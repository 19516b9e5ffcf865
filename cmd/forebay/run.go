package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/forebaymq/forebay/internal/config"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// Exit status.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// cli is the grammar of the command line.
type cli struct {
	Config string `help:"Read settings from this YAML file. Its keys are the names of flags." placeholder:"FILE"`

	Dev     devCmd     `cmd:"" help:"Start the embedded fabric: one process, one folder, a demo tenant and its token."`
	Serve   serveCmd   `cmd:"" help:"Start a node over an object store and etcd."`
	Compact compactCmd `cmd:"" help:"Run the compactor alone: merge, compact by key, collect."`
	Storage storageCmd `cmd:"" help:"What is stored, and what it costs."`
	Etcd    etcdCmd    `cmd:"" help:"Start one member of the etcd quorum."`

	Topics  topicsCmd  `cmd:"" help:"List, show, create, update and delete topics."`
	Publish publishCmd `cmd:"" help:"Publish records from arguments, standard input or a file of JSON lines."`
	Read    readCmd    `cmd:"" help:"Read records as JSON lines, up to the end."`
	Tail    tailCmd    `cmd:"" help:"Follow a topic: records as JSON lines as they come."`

	Subscriptions subscriptionsCmd `cmd:"" help:"List, show, create, update, move and delete subscriptions, the work queues of a topic."`
	Work          workCmd          `cmd:"" help:"Work off a subscription: run a command for each record, or print and ack them."`
	DLQ           dlqCmd           `cmd:"" name:"dlq" help:"List, redrive and discard dead letters."`
	Groups        groupsCmd        `cmd:"" help:"List, show, move and delete consumer groups."`
	Consume       consumeCmd       `cmd:"" help:"Read topics as a member of a consumer group: print the records and commit, or run a command for each."`

	Token   tokenCmd   `cmd:"" help:"Print a development token, signed with the key of a data folder."`
	Segment segmentCmd `cmd:"" help:"Look into segment objects."`
	Bench   benchCmd   `cmd:"" help:"Measure a server: publish, read, poll, queue."`
	Show    configCmd  `cmd:"" name:"config" help:"Print the effective settings of serve or dev, and where each comes from."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// usageError is a mistake of the caller that the grammar cannot see.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// env is what commands get.
type env struct {
	stdio
	settings *config.Settings
	kong     *kong.Context
}

// run parses and executes one command line.
func run(ctx context.Context, args []string, std stdio) int {
	e := &env{stdio: std}
	err := e.parseAndRun(ctx, args)
	var help helpShown
	var usage usageError
	var parse *kong.ParseError
	switch {
	case err == nil, errors.As(err, &help):
		return exitOK
	case errors.Is(err, syscall.EPIPE):
		return exitFailure // whoever read our output has gone: there is nobody to tell
	case errors.As(err, &parse), errors.As(err, &usage):
		fmt.Fprintf(std.err, "forebay: %v\nTry %s --help.\n", err, e.commandOf(parse))
		return exitUsage
	}
	fmt.Fprintf(std.err, "forebay: %v\n", err)
	return exitFailure
}

// commandOf gives the command whose help would have said what is wrong: that of a faulty command line as far as it was understood.
func (e *env) commandOf(fault *kong.ParseError) string {
	k := e.kong
	if fault != nil {
		k = fault.Context
	}
	if k != nil {
		if node := k.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "forebay"
}

// helpShown ends the parse after --help, which kong would do by leaving the process.
type helpShown struct{}

func (helpShown) Error() string { return "help was shown" }

func (e *env) parseAndRun(ctx context.Context, args []string) (err error) {
	grammar := &cli{}
	parser, err := kong.New(grammar,
		kong.Name("forebay"),
		kong.Description("Forebay: a multi-tenant log and work queue over object storage. Every flag has a twin in the environment "+
			"(FOREBAY_<FLAG>) and in the file of --config; a flag wins over the environment, the environment over the file."),
		kong.Writers(e.out, e.err),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.PostBuild(nameVariables),
		kong.WithBeforeResolve(e.loadSettings),
	)
	if err != nil {
		return fmt.Errorf("command line grammar: %w", err)
	}
	defer func() {
		if r := recover(); r != nil {
			h, ok := r.(helpShown)
			if !ok {
				panic(r)
			}
			err = h
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if err != nil {
		return err
	}
	e.kong = k
	k.BindTo(ctx, (*context.Context)(nil))
	return k.Run(e)
}

// loadSettings runs between the command line and the resolvers, when the name of the file is known.
func (e *env) loadSettings(ctx *kong.Context) error {
	if e.settings != nil {
		return nil // kong calls the hook for every node of the command's path
	}
	path := ""
	for _, kv := range e.environ {
		if v, ok := cutEnv(kv, config.FileFlag); ok {
			path = v
		}
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == config.FileFlag {
			path, _ = ctx.FlagValue(p.Flag).(string)
		}
	}
	var ignore []string
	if failpoint.Active {
		ignore = append(ignore, "FOREBAY_FAILPOINTS")
	}
	s, err := config.Load(e.environ, path, ignore...)
	if err != nil {
		return err
	}
	if err := s.Validate(ctx.Model); err != nil {
		return err
	}
	e.settings = s
	ctx.AddResolver(s)
	return nil
}

func cutEnv(kv, flag string) (string, bool) {
	prefix := config.EnvName(flag) + "="
	if len(kv) < len(prefix) || kv[:len(prefix)] != prefix {
		return "", false
	}
	return kv[len(prefix):], true
}

// nameVariables says in the help of each flag what its variable is called.
func nameVariables(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok && f.Name != "help" {
			f.Help += " ($" + config.EnvName(f.Name) + ")"
		}
		return next(nil)
	})
}
