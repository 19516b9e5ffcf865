package config

import "testing"

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"redis://h:6379/0":                "redis://h:6379/0",
		"redis://u:p@h:6379/0":            "redis://(redacted)@h:6379/0",
		"rediss://:p@ss/w?rd@h:6379":      "rediss://(redacted)@h:6379",
		"redis://:a@h1:1,redis://:b@h2:2": "redis://(redacted)@h2:2",
		"redis+sentinel://u:p@h:1,i:2/m/1?sentinel_password=x&timeout=1s": "redis+sentinel://(redacted)@h:1,i:2/m/1?sentinel_password=(redacted)&timeout=1s",
		"redis://h:1?Sentinel-Password=x":                                 "redis://h:1?Sentinel-Password=(redacted)",
		"h:1,h:2":                                                         "h:1,h:2",
		"":                                                                "",
		"redis://h:1?key_file=/etc/k.pem&timeout=1s": "redis://h:1?key_file=/etc/k.pem&timeout=1s",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
