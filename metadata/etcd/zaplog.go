package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo makes a zap logger that writes to l. etcd's info is our debug: it narrates its own life there.
func zapTo(l *slog.Logger) *zap.Logger { return zap.New(&zapCore{handler: l.Handler()}) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

type zapCore struct {
	handler slog.Handler
	fields  []zapcore.Field
}

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// Enabled implements zapcore.Core.
func (c *zapCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l)) // zap has no context to give
}

// With implements zapcore.Core.
func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{c.handler, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// harmless says that a warning or error of etcd's start means nothing here: it advises on set-ups that are not ours, or finds a new
// backend without the marks that its first commit writes a moment later.
func harmless(message string) bool {
	switch message {
	case "Running http and grpc server on single port. This is not recommended for production.", "check file permission",
		"simple token is not cryptographically signed", "Failed to detect schema version", "failed to update storage version":
		return true
	}
	return false
}

// Write implements zapcore.Core.
func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slogLevel(e.Level)
	if harmless(e.Message) {
		level = slog.LevelDebug
	}
	if !c.handler.Enabled(context.Background(), level) {
		return nil
	}
	m := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(m)
	}
	for _, f := range fields {
		f.AddTo(m)
	}
	r := slog.NewRecord(e.Time, level, "etcd: "+e.Message, 0)
	if len(m.Fields) > 0 {
		r.AddAttrs(slog.Any("fields", m.Fields))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core.
func (c *zapCore) Sync() error { return nil }
