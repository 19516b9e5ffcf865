//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Active says whether this build can remove fences and kill itself.
const Active = true

type action struct {
	killAt int // 1-based hit at which the process dies; 0 = never
	off    bool
	hits   int
}

// actions is the one process-wide table of this package: it exists only under the failpoints tag, where the environment is the
// only way to reach a process that is about to be killed.
var actions = struct {
	sync.Mutex
	byName map[string]*action
}{byName: parse(os.Getenv("FOREBAY_FAILPOINTS"))}

func parse(spec string) map[string]*action {
	m := map[string]*action{}
	for _, item := range strings.Split(spec, ",") {
		if item == "" {
			continue
		}
		name, what, _ := strings.Cut(item, "=")
		verb, arg, _ := strings.Cut(what, "@")
		a := &action{}
		switch verb {
		case "off":
			a.off = true
		case "kill":
			n, err := strconv.Atoi(arg)
			if err != nil || n < 1 {
				fmt.Fprintf(os.Stderr, "failpoint: %q: kill wants @N, N >= 1\n", item)
				os.Exit(2)
			}
			a.killAt = n
		default:
			fmt.Fprintf(os.Stderr, "failpoint: %q: want name=kill@N or name=off\n", item)
			os.Exit(2)
		}
		m[name] = a
	}
	return m
}

// Hit counts a pass through a named place, and ends the process there if asked to.
func Hit(name string) {
	actions.Lock()
	a := actions.byName[name]
	if a == nil {
		actions.Unlock()
		return
	}
	a.hits++
	kill := a.killAt > 0 && a.hits == a.killAt
	actions.Unlock()
	if kill {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing after this line may run
	}
}

// Enabled says whether a fence is removed in this process.
func Enabled(name string) bool {
	actions.Lock()
	defer actions.Unlock()
	a := actions.byName[name]
	return a != nil && a.off
}

// Set removes (true) or restores (false) a fence, for tests that run broken and whole builds in one process.
func Set(name string, off bool) {
	actions.Lock()
	defer actions.Unlock()
	actions.byName[name] = &action{off: off}
}
