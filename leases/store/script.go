package store

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/forebaymq/forebay/internal/failpoint"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script names one Lua script of the store. It is a metric label.
type script int

const (
	scriptAcquire script = iota
	scriptSettle
	scriptAdmit
	scriptPositions
	scriptSweep
	scriptExport
	scriptClean
	scriptSurvey
	scriptLoad
	scriptReady
	scriptGroups
	scriptAudit
	scriptStats
	scriptDead
	scriptPeek
	scriptRecall
	scriptRemove
	scripts // how many
)

// parts are the files that make up each script, in order. The fast part of a script runs before the library is even defined: creating its
// closures costs more than a common lease.
var parts = [scripts][]string{
	scriptAcquire:   {"prelude", "acquire_fast", "ranges", "core", "recount", "acquire"},
	scriptSettle:    {"prelude", "ranges", "settle_fast", "core", "broken", "settle"},
	scriptAdmit:     {"prelude", "ranges", "core", "admit"},
	scriptPositions: {"prelude", "ranges", "core", "positions"},
	scriptSweep:     {"prelude", "ranges", "core", "forget", "sweep"},
	scriptExport:    {"prelude", "ranges", "core", "export"},
	scriptClean:     {"prelude", "ranges", "core", "forget", "clean"},
	scriptSurvey:    {"prelude", "ranges", "core", "survey"},
	scriptLoad:      {"prelude", "ranges", "core", "purge", "load"},
	scriptReady:     {"prelude", "ranges", "core", "ready"},
	scriptGroups:    {"groups"},
	scriptAudit:     {"prelude", "ranges", "core", "recount", "audit"},
	scriptStats:     {"prelude", "ranges", "core", "stats"},
	scriptDead:      {"prelude", "ranges", "core", "dead"},
	scriptPeek:      {"prelude", "ranges", "core", "peek"},
	scriptRecall:    {"prelude", "ranges", "core", "recall"},
	scriptRemove:    {"prelude", "ranges", "core", "purge", "remove"},
}

var scriptNames = [scripts]string{"acquire", "settle", "admit", "positions", "sweep", "export", "clean", "survey", "load", "ready", "groups", "audit",
	"stats", "dead", "peek", "recall", "remove"}

func (s script) String() string { return scriptNames[s] }

// edition is the scripts as one life of one store knows them. Their texts, and so their names in Redis, are of this life alone: a call that
// was begun in an earlier life cannot run in a Redis of a later one.
type edition struct {
	life uint64
	text [scripts]string
	sha  [scripts]string
	// loaded: Redis was given the scripts. Only then does their absence tell of another Redis.
	loaded atomic.Bool
}

func newEdition(instance string, life uint64) *edition {
	e := &edition{life: life}
	head := "-- " + strings.Map(printable, instance) + " " + strconv.FormatUint(life, 10) + "\n" +
		"local NONONCE, NOLOCK, ackAnyway = " + strconv.FormatBool(failpoint.Enabled(failpoint.NoNonceCheck)) + ", " +
		strconv.FormatBool(failpoint.Enabled(failpoint.NoKeyLock)) + "\n"
	for s := range scripts {
		var b strings.Builder
		b.WriteString(head)
		for _, name := range parts[s] {
			if name == "broken" && !failpoint.Active {
				continue
			}
			text, err := luaFiles.ReadFile("lua/" + name + ".lua")
			if err != nil {
				panic(err) // embedded: a test builds an edition
			}
			b.Write(text)
			b.WriteByte('\n')
		}
		e.text[s] = b.String()
		sum := sha1.Sum([]byte(e.text[s])) //nolint:gosec // see the import
		e.sha[s] = hex.EncodeToString(sum[:])
	}
	return e
}

// printable keeps an instance's name on its comment line.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '_'
	}
	return r
}
