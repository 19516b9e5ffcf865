package node

import (
	"bytes"
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The embedded Redis has the real time, keys that expire, scripts, and lets nobody in without its password.
func TestEmbeddedRedis(t *testing.T) {
	c := Config{}.WithDefaults()
	r, err := startRedis(c.Clock, c.Random)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	o, err := redis.ParseURL(r.url)
	if err != nil {
		t.Fatal(err)
	}
	o.DialerRetries, o.MaxRetries = 1, -1
	client := redis.NewClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if now, err := client.Time(ctx).Result(); err != nil || time.Until(now).Abs() > 10*time.Second {
		t.Errorf("the time is %s, %v", now, err)
	}
	begin := time.Now()
	if err := client.Set(ctx, "k", "v", 3*redisTick).Err(); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n == 1; {
		if n, err = client.Exists(ctx, "k").Result(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < redisTick {
		t.Errorf("a key of %s has expired after %s", 3*redisTick, took)
	}
	sha, err := client.ScriptLoad(ctx, "return redis.call('TIME')[1] .. ARGV[1]").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.EvalSha(ctx, sha, []string{"{a}"}, "x").Result(); err != nil {
		t.Error(err)
	}
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	stranger := redis.NewClient(&redis.Options{Addr: u.Host, MaxRetries: -1})
	defer stranger.Close()
	if err := stranger.Ping(ctx).Err(); err == nil {
		t.Error("Redis answers without a password")
	}
	if _, err := startRedis(c.Clock, bytes.NewReader(nil)); err == nil {
		t.Error("a Redis without a password was started")
	}
}
