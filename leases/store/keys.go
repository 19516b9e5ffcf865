package store

import (
	"strconv"

	"github.com/forebaymq/forebay/metadata"
)

// groups is into how many hash slots the subscriptions of a fabric are divided. docs/lease-keys.md is about what is in them.
const groups = 64

// Kinds of keys. Those of a group are followed by nothing, those of a subscription by nothing or by ":" and a partition.
const (
	groupDue   = "due"
	groupDirty = "dirty"
	groupSubs  = "subs"

	keyShards       = "H"
	keyBlocks       = "L"
	keyExpiries     = "X"
	keySettled      = "A"
	keyPointers     = "P"
	keyOwed         = "O"
	keyOwedHeads    = "OP"
	keyScheduled    = "Y"
	keyDetached     = "B"
	keyDead         = "D"
	keyCopies       = "C"
	keyChanged      = "J"
	keyDirty        = "S"
	keyLocks        = "K"
	keyHashes       = "KO"
	keyWaiting      = "W"
	keyFairCounts   = "F"
	keyFairTurns    = "FQ"
	keyFairWaiting  = "FW"
	keyRemembered   = "Q"
	keyHints        = "M"
	fieldMeta       = "m"
	fieldStaged     = "~"
	wakeChannelTail = ":wake"
)

func (s *Store) groupPrefix(group uint64) string {
	return "fb:{" + s.o.Fabric + "." + strconv.FormatUint(group, 10) + "}:"
}

func (s *Store) prefix(id metadata.SubscriptionID) string {
	return s.groupPrefix(uint64(id)%groups) + strconv.FormatUint(uint64(id), 10) + ":"
}

func (s *Store) channel() string { return "fb:" + s.o.Fabric + wakeChannelTail }
