package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://h":                                   "[h:6379] db=0 user= pw= tls=false cluster=false master=",
		"redis://h:1/3":                               "[h:1] db=3 user= pw= tls=false cluster=false master=",
		"rediss://u:p%40%2F@[::1]:7":                  "[[::1]:7] db=0 user=u pw=p@/ tls=true cluster=false master=",
		"redis://:p@a:1,b:2":                          "[a:1 b:2] db=0 user= pw=p tls=false cluster=false master=",
		"redis+cluster://a":                           "[a:6379] db=0 user= pw= tls=false cluster=true master=",
		"rediss+sentinel://u:p@a,b:5/main/2":          "[a:26379 b:5] db=2 user=u pw=p tls=true cluster=false master=main",
		"redis://h?protocol=2&timeout=5s&pool_size=3": "[h:6379] db=0 user= pw= tls=false cluster=false master=",
	} {
		o, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := fmt.Sprintf("%v db=%d user=%s pw=%s tls=%v cluster=%v master=%s", o.Addrs, o.DB, o.Username, o.Password, o.TLSConfig != nil, o.IsClusterMode, o.MasterName)
		if got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	o, err := parseURL("redis+sentinel://h/m?protocol=2&timeout=5s&pool_size=3&dial_timeout=1s&sentinel_username=su&sentinel_password=sp")
	if err != nil || o.Protocol != 2 || o.ReadTimeout != 5*time.Second || o.WriteTimeout != 5*time.Second || o.PoolSize != 3 || o.DialTimeout != time.Second ||
		o.SentinelUsername != "su" || o.SentinelPassword != "sp" {
		t.Fatalf("%+v %v", o, err)
	}
	if o, err := parseURL("rediss://h?server_name=n&insecure_skip_verify=true"); err != nil || o.TLSConfig.ServerName != "n" || !o.TLSConfig.InsecureSkipVerify {
		t.Fatal(err)
	}
	for _, raw := range []string{"", "h:1", "http://h", "redis://", "redis://a,,b", "redis://h/x", "redis://h/1/2", "redis://a,b/1", "redis+sentinel://h", "redis://h?x=1",
		"redis://h?protocol=4", "redis://h?pool_size=0", "redis://h?timeout=-1s", "redis://h?insecure_skip_verify=true", "redis://h?ca_file=/x", "redis://h?server_name=x",
		"rediss://h?ca_file=/nowhere", "rediss://h?cert_file=/nowhere", "redis://h:x", "redis://u:se%cret@h"} {
		if _, err := parseURL(raw); err == nil {
			t.Errorf("%q is accepted", raw)
		} else if strings.Contains(err.Error(), "cret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
