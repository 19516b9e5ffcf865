package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// maxReply bounds what one reply may hold: INFO takes a few kilobytes.
const maxReply = 1 << 20

// ReplyError is an error that the server answered.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// call opens a connection, sends one command after AUTH, and gives its reply: a string, an int64, nil or []any.
func call(addr, password string, timeout time.Duration, args ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if password != "" {
		if _, err := exchange(conn, r, "AUTH", password); err != nil {
			return nil, err
		}
	}
	return exchange(conn, r, args...)
}

func exchange(w io.Writer, r *bufio.Reader, args ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return nil, err
	}
	return readReply(r, 0)
}

func readReply(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if line = strings.TrimSuffix(line, "\r\n"); line == "" || depth > 8 {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n > maxReply {
			return nil, fmt.Errorf("not a length: %q", line)
		}
		if n < 0 {
			return nil, nil
		}
		if kind == '$' {
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return nil, err
			}
			return string(body[:n]), nil
		}
		var list []any
		for range n {
			e, err := readReply(r, depth+1)
			var refused ReplyError
			if errors.As(err, &refused) {
				e, err = refused, nil
			}
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	}
	return nil, fmt.Errorf("not a reply: %q", line)
}
