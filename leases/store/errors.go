package store

import (
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/metadata"
)

// ErrStale: another opening of the shard, or a newer life of Redis, has overtaken the call. Nothing was done; open it again from the journal.
var ErrStale = errors.New("lease store: the opening is stale")

// ErrMoved: others have noted another position since the caller has asked. Nothing was done.
var ErrMoved = errors.New("lease store: the position has moved")

// ErrCursor: the text is no cursor of a listing.
var ErrCursor = errors.New("lease store: not a cursor")

// NotLoadedError: Redis does not have the state of the subscription, or what it has may be older than the journal. Nothing was done. Open the
// subscription, or the named partitions of it, from the journal and repeat the call.
type NotLoadedError struct {
	Subscription metadata.SubscriptionID
	Partitions   []int32 // nil: all
}

func (e *NotLoadedError) Error() string {
	if e.Partitions == nil {
		return fmt.Sprintf("lease store: subscription %d is not loaded", e.Subscription)
	}
	return fmt.Sprintf("lease store: partitions %v of subscription %d are not loaded", e.Partitions, e.Subscription)
}

func asNotLoaded(err error, nl **NotLoadedError) bool { return errors.As(err, nl) }

// Unknown says whether a call that failed may have had its effect: it was sent, and no answer came.
func Unknown(err error) bool {
	var u *unknownError
	return errors.As(err, &u)
}
