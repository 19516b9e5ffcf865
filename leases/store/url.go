package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// parseURL reads the forms that the package comment names. Errors do not show the password.
func parseURL(raw string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, fmt.Errorf("redis URL has no scheme: want redis://host:port, rediss://, redis+sentinel:// or redis+cluster://")
	}
	o := &redis.UniversalOptions{}
	secure, sentinel := false, false
	switch scheme {
	case "redis":
	case "rediss":
		secure = true
	case "redis+sentinel":
		sentinel = true
	case "rediss+sentinel":
		secure, sentinel = true, true
	case "redis+cluster":
		o.IsClusterMode = true
	case "rediss+cluster":
		secure, o.IsClusterMode = true, true
	default:
		return nil, fmt.Errorf("redis URL: unknown scheme %q", scheme)
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	port := "6379"
	if sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	u, err := url.Parse("redis://" + user + "hosts" + tail)
	if err != nil {
		return nil, fmt.Errorf("redis URL: user, path or query is malformed") // url.Error would show the password
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if sentinel {
		o.MasterName, path = path[0], path[1:]
		if o.MasterName == "" {
			return nil, fmt.Errorf("redis URL: want redis+sentinel://hosts/name-of-the-primary[/db]")
		}
	}
	if len(path) > 0 && path[0] != "" {
		if o.DB, err = strconv.Atoi(path[0]); err != nil || o.DB < 0 || len(path) > 1 {
			return nil, fmt.Errorf("redis URL: %q is not the number of a database", strings.Join(path, "/"))
		}
	}
	if o.DB != 0 && (o.IsClusterMode || !sentinel && len(o.Addrs) > 1) {
		return nil, fmt.Errorf("redis URL: a cluster has no database %d", o.DB)
	}
	if secure {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, query(o, u.Query())
}

func address(host, port string) (string, error) {
	if host == "" {
		return "", fmt.Errorf("redis URL: an address is empty")
	}
	u, err := url.Parse("redis://" + host)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("redis URL: %q is not host:port", host)
	}
	if u.Port() == "" {
		return u.Host + ":" + port, nil
	}
	return u.Host, nil
}

func query(o *redis.UniversalOptions, q url.Values) error {
	var ca, cert, key string
	for name, values := range q {
		v := values[len(values)-1]
		var err error
		switch name {
		case "protocol":
			if o.Protocol, err = strconv.Atoi(v); err == nil && o.Protocol != 2 && o.Protocol != 3 {
				err = fmt.Errorf("want 2 or 3")
			}
		case "pool_size":
			if o.PoolSize, err = strconv.Atoi(v); err == nil && o.PoolSize < 1 {
				err = fmt.Errorf("want 1 or more")
			}
		case "dial_timeout":
			o.DialTimeout, err = positive(v)
		case "timeout":
			o.ReadTimeout, err = positive(v)
			o.WriteTimeout = o.ReadTimeout
		case "sentinel_username":
			o.SentinelUsername = v
		case "sentinel_password":
			o.SentinelPassword = v
		case "ca_file":
			ca = v
		case "cert_file":
			cert = v
		case "key_file":
			key = v
		case "server_name":
			if o.TLSConfig == nil {
				err = fmt.Errorf("only with TLS")
			} else {
				o.TLSConfig.ServerName = v
			}
		case "insecure_skip_verify":
			var skip bool
			if skip, err = strconv.ParseBool(v); err == nil && o.TLSConfig == nil {
				err = fmt.Errorf("only with TLS")
			} else if err == nil {
				o.TLSConfig.InsecureSkipVerify = skip
			}
		default:
			err = fmt.Errorf("unknown setting")
		}
		if err != nil {
			return fmt.Errorf("redis URL: %s: %w", name, err)
		}
	}
	if (ca != "" || cert != "" || key != "") && o.TLSConfig == nil {
		return fmt.Errorf("redis URL: ca_file, cert_file and key_file: only with TLS")
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("redis URL: ca_file: %w", err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("redis URL: ca_file: %s has no certificate", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("redis URL: cert_file and key_file: %w", err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

func positive(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err == nil && d <= 0 {
		err = fmt.Errorf("want a duration above 0")
	}
	return d, err
}

// silent is the client library's logger, which is the whole process's: it would write every failed dial to standard error. Its errors are
// returned, counted and logged here.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// client makes the client for parsed options. Scripts are never sent twice: a second execution would be a second effect.
func client(o *redis.UniversalOptions) redis.UniversalClient {
	redis.SetLogger(silent{})
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialerRetries = 1
	if o.DialTimeout == 0 {
		o.DialTimeout = 2 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout, o.WriteTimeout = 3*time.Second, 3*time.Second
	}
	if o.PoolSize == 0 {
		o.PoolSize = 64
	}
	if o.MasterName == "" && (o.IsClusterMode || len(o.Addrs) > 1) {
		c := o.Cluster()
		c.DisableRoutingPolicies = true // every script and every key names its slot
		return redis.NewClusterClient(c)
	}
	return redis.NewUniversalClient(o)
}
