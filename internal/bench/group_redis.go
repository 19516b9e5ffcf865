package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// redisOps asks a Redis for its figures, and empties it. It is no client of anything that Forebay keeps there, so it needs none of the lease store.
type redisOps struct {
	address string
	login   []string // AUTH and what it takes, nil = none
}

// newRedisOps takes redis://[[user]:password@]host[:port].
func newRedisOps(text string) (*redisOps, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("redis-url: want redis://host:port") // the error would tell the password
	}
	if u.Scheme != "redis" || u.Hostname() == "" {
		return nil, errors.New("redis-url: want redis://host:port, one server without TLS")
	}
	r := &redisOps{address: u.Host}
	if u.Port() == "" {
		r.address = net.JoinHostPort(u.Hostname(), "6379")
	}
	if password, ok := u.User.Password(); ok {
		if r.login = []string{"AUTH", password}; u.User.Username() != "" {
			r.login = []string{"AUTH", u.User.Username(), password}
		}
	}
	return r, nil
}

// redisTimeout bounds one call.
const redisTimeout = 10 * time.Second

// do makes one call on a connection of its own, and gives a text or a status.
func (r *redisOps) do(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	if r.login != nil {
		if _, err := call(conn, in, r.login); err != nil {
			return "", err
		}
	}
	return call(conn, in, args)
}

func call(w io.Writer, in *bufio.Reader, args []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return "", err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "+"):
		return line[1:], nil
	case strings.HasPrefix(line, "-"):
		return "", fmt.Errorf("answer of Redis: %s", line[1:])
	case strings.HasPrefix(line, "$"):
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 || n > 1<<20 {
			break
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return "", err
		}
		return string(text[:n]), nil
	}
	return "", fmt.Errorf("answer of Redis is not understood: %q", line)
}

// figures gives what INFO says in numbers.
func (r *redisOps) figures(ctx context.Context) (map[string]float64, error) {
	text, err := r.do(ctx, "INFO")
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its figures: %w", err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// empty removes everything that anybody has there.
func (r *redisOps) empty(ctx context.Context) error {
	if _, err := r.do(ctx, "FLUSHALL"); err != nil {
		return fmt.Errorf("empty Redis: %w", err)
	}
	return nil
}
