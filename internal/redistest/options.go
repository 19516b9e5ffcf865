package redistest

// Option changes how a server is started.
type Option func(*options)

type options struct {
	password string
	persist  bool
	config   [][2]string
}

// Password makes the server ask for a password; URL carries it.
func Password(p string) Option { return func(o *options) { o.password = p } }

// Persist makes the server keep every write on disk (an append-only file, synced each time), so that Restart finds it again.
func Persist() Option { return func(o *options) { o.persist = true } }

// Config sets one directive of redis.conf, overriding what the others say.
func Config(name, value string) Option {
	return func(o *options) { o.config = append(o.config, [2]string{name, value}) }
}
