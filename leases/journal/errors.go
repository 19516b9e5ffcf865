package journal

import (
	"errors"
	"time"

	"github.com/forebaymq/forebay/api"
)

// ErrStale is the cause of the error of an opening that was built on a state which is not the newest any more: another incarnation began
// meanwhile. The opening has no effect that lasts; load again and open what is there then.
var ErrStale = errors.New("another incarnation of the shard began meanwhile")

// errFormat says that a key or a value is not one that this version can read.
var errFormat = errors.New("not of this format")

func stale() error {
	return &api.Error{Code: api.CodeLeasesUnavailable, Detail: "the subscription is being opened by another node", RetryAfter: time.Second, Cause: ErrStale}
}
