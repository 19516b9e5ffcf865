package feed

import (
	"context"
)

// Stream is an Input over a source that may be slow, such as a pipe that somebody types into: its lines are read ahead by a goroutine, so
// that Publish can send what is there while the next line is not.
type Stream struct {
	ctx   context.Context
	lines chan Line
	end   error // why lines was closed; read only after that
}

// NewStream begins to read. The goroutine ends when in ends or ctx does; a read from in that blocks keeps it until then.
func NewStream(ctx context.Context, in Input, ahead int) *Stream {
	s := &Stream{ctx: ctx, lines: make(chan Line, ahead)}
	go s.read(in)
	return s
}

func (s *Stream) read(in Input) {
	defer close(s.lines)
	for {
		line, err := in.Next()
		if err != nil {
			s.end = err
			return
		}
		select {
		case s.lines <- line:
		case <-s.ctx.Done():
			s.end = context.Cause(s.ctx)
			return
		}
	}
}

// Next waits for a line.
func (s *Stream) Next() (Line, error) {
	select {
	case line, ok := <-s.lines:
		if !ok {
			return Line{}, s.end
		}
		return line, nil
	case <-s.ctx.Done():
		return Line{}, context.Cause(s.ctx)
	}
}

// Pending says whether a line is there at once.
func (s *Stream) Pending() bool { return len(s.lines) > 0 }

var (
	_ Input   = (*Lines)(nil)
	_ Flusher = (*Stream)(nil)
)
