package feed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/forebaymq/forebay/api"
)

// maxLineBytes bounds one line: a record of the largest size, with room for the JSON around what becomes its value.
const maxLineBytes = api.MaxRecordBytes + 64<<10

// Line is one line of the input, without its end.
type Line struct {
	Number int64 // 1-based; blank lines count, so that numbers are those of an editor
	Text   []byte
}

// Lines reads the lines of an input. Blank lines are passed over.
type Lines struct {
	r      *bufio.Reader
	number int64
}

// NewLines reads from r, through gzip where r begins with its magic.
func NewLines(r io.Reader) (*Lines, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read input: %w", err)
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("open gzip input: %w", err)
		}
		b = bufio.NewReaderSize(z, 64<<10)
	}
	return &Lines{r: b}, nil
}

// Next gives the next line that is not blank; its Text is the caller's to keep. io.EOF after the last.
func (l *Lines) Next() (Line, error) {
	for {
		var text []byte
		for {
			part, err := l.r.ReadSlice('\n')
			text = append(text, part...)
			if len(text) > maxLineBytes {
				return Line{}, fmt.Errorf("line %d is longer than %d bytes", l.number+1, maxLineBytes)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if errors.Is(err, io.EOF) {
				if len(text) == 0 {
					return Line{}, io.EOF
				}
				break
			}
			if err != nil {
				return Line{}, fmt.Errorf("read line %d: %w", l.number+1, err)
			}
			break
		}
		l.number++
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if len(bytes.TrimSpace(text)) > 0 {
			return Line{Number: l.number, Text: text}, nil
		}
	}
}
