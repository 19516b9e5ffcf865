package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/metadata"
)

// GroupStore keeps in Redis what a consumer group is in its present generation, and the sessions of its members. All of it is a copy of what the journal
// has, but for the sessions; a group of which Redis has nothing is built anew from the journal. Everything of a group is in one hash, so that it is
// lost as a whole or not at all, and only a later generation takes the place of one. What another life of Redis has may be of a
// generation that is over: whoever looks compares it with the journal.
type GroupStore struct {
	s    *Store
	m    *groupMetrics
	pipe groupPipe
	text [groupScripts]string
	sha  [groupScripts]string
}

// groupScript names a script. It is a metric label.
type groupScript int

const (
	groupLook groupScript = iota
	groupPublish
	groupSessions
	groupSweep
	groupPosition
	groupUnlock
	groupScripts // how many
)

var groupScriptNames = [groupScripts]string{"look", "publish", "sessions", "sweep", "position", "unlock"}

func (s groupScript) String() string { return groupScriptNames[s] }

// NewGroupStore makes one. s stays open until it is not used any more.
func NewGroupStore(s *Store) (*GroupStore, error) {
	m, err := newGroupMetrics(s.o.Registerer)
	if err != nil {
		return nil, err
	}
	g := &GroupStore{s: s, m: m, pipe: groupPipe{s: s}}
	for sc := range groupScripts {
		text, err := luaFiles.ReadFile("lua/group_" + sc.String() + ".lua")
		if err != nil {
			return nil, fmt.Errorf("read script %s: %w", sc, err)
		}
		g.text[sc] = string(text)
		sum := sha1.Sum(text) //nolint:gosec // see the import
		g.sha[sc] = hex.EncodeToString(sum[:])
	}
	return g, nil
}

// Keys of consumer groups: docs/lease-keys.md.
const (
	keyGroupState     = ":s"
	keyGroupPositions = ":p"
	keyGroupLock      = ":l"
)

// Life counts the Redis processes that were met, as Store.Life does.
func (g *GroupStore) Life() uint64 { return g.s.Life() }

func (g *GroupStore) slotPrefix(slot uint64) string {
	return "fb:{" + g.s.o.Fabric + ".g" + strconv.FormatUint(slot, 10) + "}:"
}

func (g *GroupStore) key(id metadata.GroupID, tail string) string {
	return g.slotPrefix(uint64(id)%groups) + "g:" + strconv.FormatUint(uint64(id), 10) + tail
}

func (g *GroupStore) dueKey(id metadata.GroupID) string {
	return g.slotPrefix(uint64(id)%groups) + "sessions"
}

// GroupLook is what Redis has of a group.
type GroupLook struct {
	Found      bool // else Redis has nothing
	Now        int64
	Generation int64
	Expires    []int64 // Unix ms, one a member that was asked for: the end of its session; 0 = it has none, or none any more
	State      []byte  // nil: the caller has it
}

// Look gives the state of a group, unless the caller has that of the present generation, and the sessions of some members. With beat those of the
// sessions that are not over begin anew.
func (g *GroupStore) Look(ctx context.Context, id metadata.GroupID, known int64, beat bool, members ...string) (*GroupLook, error) {
	args := make([]any, 0, 2+len(members))
	args = append(args, known, flagArg(beat))
	for _, m := range members {
		args = append(args, m)
	}
	v, err := g.eval(ctx, groupLook, []string{g.key(id, keyGroupState)}, args)
	if err != nil {
		return nil, err
	}
	words, err := texts(v)
	if err != nil || len(words) != 2 {
		return nil, g.unexpected(groupLook, err)
	}
	r := reply{rest: words[0]}
	out := &GroupLook{Found: r.word() == "OK", Now: r.int()}
	if out.Found {
		out.Generation = r.int()
		out.Expires = make([]int64, len(members))
		for i := range members {
			out.Expires[i] = r.int()
		}
		if out.Generation != known {
			out.State = []byte(words[1])
		}
	}
	if r.err != nil || r.rest != "" {
		return nil, g.unexpected(groupLook, r.err)
	}
	return out, nil
}

// GroupSession says how a member's session goes on in a new generation.
type GroupSession struct {
	Member  string
	Session time.Duration
	Absent  bool // heartbeats do not prolong it
	Begin   bool // it begins now; one that Redis does not know does so anyway
}

// Publish shows a new generation to everybody. ErrStale when there is a later one already.
func (g *GroupStore) Publish(ctx context.Context, id metadata.GroupID, generation int64, state []byte, sessions []GroupSession) error {
	args := make([]any, 0, 3+4*len(sessions))
	args = append(args, generation, uint64(id), state)
	for _, s := range sessions {
		prolong := ms(s.Session)
		if s.Absent {
			prolong = 0
		}
		args = append(args, s.Member, ms(s.Session), prolong, flagArg(s.Begin))
	}
	v, err := g.eval(ctx, groupPublish, []string{g.key(id, keyGroupState), g.dueKey(id), g.key(id, keyGroupPositions)}, args)
	if err != nil {
		return err
	}
	return g.status(groupPublish, v)
}

// GroupSessions are all sessions of a group.
type GroupSessions struct {
	Found      bool // else Redis has nothing
	Now        int64
	Generation int64
	Expires    map[string]int64 // Unix ms, by member
}

// Sessions gives the sessions of a group, those that have lapsed among them.
func (g *GroupStore) Sessions(ctx context.Context, id metadata.GroupID) (*GroupSessions, error) {
	v, err := g.eval(ctx, groupSessions, []string{g.key(id, keyGroupState)}, nil)
	if err != nil {
		return nil, err
	}
	words, err := texts(v)
	if err != nil || len(words)%2 != 1 {
		return nil, g.unexpected(groupSessions, err)
	}
	r := reply{rest: words[0]}
	out := &GroupSessions{Found: r.word() == "OK", Now: r.int(), Expires: map[string]int64{}}
	if out.Found {
		out.Generation = r.int()
	}
	for i := 1; i < len(words); i += 2 {
		ends, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return nil, g.unexpected(groupSessions, err)
		}
		out.Expires[words[i]] = ends
	}
	if r.err != nil {
		return nil, g.unexpected(groupSessions, r.err)
	}
	return out, nil
}

// Lapsed gives the groups in which a session has lapsed, each at most once a second, in one round trip.
func (g *GroupStore) Lapsed(ctx context.Context) ([]metadata.GroupID, error) {
	for attempt := 0; ; attempt++ {
		start := g.s.o.Clock.Now()
		pipe := g.s.c.Pipeline()
		for slot := range uint64(groups) {
			p := g.slotPrefix(slot)
			pipe.EvalSha(ctx, g.sha[groupSweep], []string{p + "sessions"}, p+"g:", keyGroupState)
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			for _, cmd := range cmds {
				if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
					err = cmd.Err()
				}
			}
			res, again, err := g.failed(ctx, groupSweep, err)
			g.m.call(groupSweep, res, g.s.o.Clock.Since(start))
			if again && attempt == 0 {
				continue
			}
			return nil, err
		}
		g.m.call(groupSweep, resultOK, g.s.o.Clock.Since(start))
		var ids []metadata.GroupID
		for _, cmd := range cmds {
			text, ok := cmd.(*redis.Cmd).Val().(string)
			if !ok {
				return nil, g.unexpected(groupSweep, nil)
			}
			for word := range strings.FieldsSeq(text) {
				id, err := strconv.ParseUint(word, 10, 64)
				if err != nil {
					return nil, g.unexpected(groupSweep, err)
				}
				ids = append(ids, metadata.GroupID(id))
			}
		}
		return ids, nil
	}
}

// GroupPosition is how far the owner of a partition has polled.
type GroupPosition struct {
	Topic     metadata.TopicID
	Partition int32
	Offset    int64
	// Noted is what Redis had when it was asked, "" = nothing. Only who has seen the newest may note a later position.
	Noted string
	// Read says that records were read up to Offset. Else it is noted only to be found again, unless somebody else was faster.
	Read bool
}

func (p *GroupPosition) field() string {
	return strconv.FormatUint(uint64(p.Topic), 10) + ":" + strconv.FormatInt(int64(p.Partition), 10)
}

// positionsKept is how long positions are kept after the last poll.
const positionsKept = 24 * time.Hour

// noPosition is noted where positions are forgotten, and not nothing: a poll that began before must not be taken for one that began after.
const noPosition = -1

// position is what is noted of a position: the offset, and whose it is, so that no two are the same.
func position(offset int64, writer string) string {
	return strconv.FormatInt(offset, 10) + " " + writer
}

// Positions fills in the offsets that were noted in the present generation, -1 where none was, and what Redis has of them.
func (g *GroupStore) Positions(ctx context.Context, id metadata.GroupID, at []GroupPosition) error {
	if len(at) == 0 {
		return nil
	}
	args := make([]any, 0, 2+len(at))
	args = append(args, "hmget", g.key(id, keyGroupPositions))
	for i := range at {
		args = append(args, at[i].field())
	}
	cmd := redis.NewCmd(ctx, args...)
	if err := g.pipe.do(ctx, cmd); err != nil {
		return unavailable(err)
	}
	got, ok := cmd.Val().([]any)
	if !ok || len(got) != len(at) {
		return unavailable(errReply)
	}
	for i, v := range got {
		at[i].Offset, at[i].Noted = noPosition, ""
		if text, ok := v.(string); ok {
			number, _, _ := strings.Cut(text, " ")
			offset, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return unavailable(errReply)
			}
			at[i].Offset, at[i].Noted = offset, text
		}
	}
	return nil
}

// SetPositions notes positions, all or none. writer is a name that nobody else uses, and the caller never again. ErrStale when the group is in another
// generation: all positions end with a generation. ErrMoved when a partition that was read has another position now than the caller has seen.
func (g *GroupStore) SetPositions(ctx context.Context, id metadata.GroupID, generation int64, writer string, at []GroupPosition) error {
	args := make([]any, 0, 2+4*len(at))
	args = append(args, generation, ms(positionsKept))
	for i := range at {
		args = append(args, at[i].field(), at[i].Noted, position(at[i].Offset, writer), flagArg(at[i].Read))
	}
	v, err := g.eval(ctx, groupPosition, []string{g.key(id, keyGroupState), g.key(id, keyGroupPositions)}, args)
	if err != nil {
		return err
	}
	if v == "MV" {
		return ErrMoved
	}
	return g.status(groupPosition, v)
}

// ForgetPositions forgets positions: polls go on from the committed offsets, and those that began before do not count. writer is as in SetPositions.
func (g *GroupStore) ForgetPositions(ctx context.Context, id metadata.GroupID, writer string, at []GroupPosition) error {
	if len(at) == 0 {
		return nil
	}
	values := make([]any, 0, 2*len(at))
	for i := range at {
		values = append(values, at[i].field(), position(noPosition, writer))
	}
	pipe := g.s.c.TxPipeline()
	pipe.HSet(ctx, g.key(id, keyGroupPositions), values...)
	pipe.PExpire(ctx, g.key(id, keyGroupPositions), positionsKept)
	if _, err := pipe.Exec(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// Drop forgets a group.
func (g *GroupStore) Drop(ctx context.Context, id metadata.GroupID) error {
	pipe := g.s.c.Pipeline()
	pipe.Del(ctx, g.key(id, keyGroupState), g.key(id, keyGroupPositions))
	pipe.ZRem(ctx, g.dueKey(id), uint64(id))
	if _, err := pipe.Exec(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// Lock says whether holder may change the group now. It only keeps several nodes from getting in each other's way: nothing depends on it.
func (g *GroupStore) Lock(ctx context.Context, id metadata.GroupID, holder string, ttl time.Duration) (bool, error) {
	err := g.s.c.SetArgs(ctx, g.key(id, keyGroupLock), holder, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.Nil):
		return false, nil
	}
	return false, unavailable(err)
}

// Unlock ends a lock that holder still has.
func (g *GroupStore) Unlock(ctx context.Context, id metadata.GroupID, holder string) error {
	v, err := g.eval(ctx, groupUnlock, []string{g.key(id, keyGroupLock)}, []any{holder})
	if err != nil {
		return err
	}
	return g.status(groupUnlock, v)
}

func flagArg(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// texts takes an answer of several strings apart.
func texts(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: a %T", errReply, v)
	}
	out := make([]string, len(list))
	for i := range list {
		if out[i], ok = list[i].(string); !ok {
			return nil, fmt.Errorf("%w: a %T among others", errReply, list[i])
		}
	}
	return out, nil
}

func (g *GroupStore) status(sc groupScript, v any) error {
	text, ok := v.(string)
	switch {
	case ok && strings.HasPrefix(text, "OK"):
		return nil
	case ok && text == "ST":
		return ErrStale
	}
	return g.unexpected(sc, nil)
}

func (g *GroupStore) unexpected(sc groupScript, err error) error {
	if err == nil {
		err = errReply
	}
	g.m.calls[sc][resultError].Inc()
	return unavailable(fmt.Errorf("script group_%s: %w", sc, err))
}

// eval calls a script. Where Redis does not have it, nothing has happened: it is loaded, and called once more.
func (g *GroupStore) eval(ctx context.Context, sc groupScript, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", g.sha[sc], len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	for attempt := 0; ; attempt++ {
		start := g.s.o.Clock.Now()
		cmd := redis.NewCmd(ctx, all...)
		err := g.pipe.do(ctx, cmd)
		if err == nil {
			g.m.call(sc, resultOK, g.s.o.Clock.Since(start))
			return cmd.Val(), nil
		}
		res, again, err := g.failed(ctx, sc, err)
		g.m.call(sc, res, g.s.o.Clock.Since(start))
		if !again || attempt > 0 {
			return nil, err
		}
	}
}

// failed says what an error means, and whether the call may be made again at once.
func (g *GroupStore) failed(ctx context.Context, sc groupScript, err error) (res result, again bool, out error) {
	var re redis.Error
	switch {
	case errors.Is(err, errNewLife): // the connection was ended before anything was sent
		return resultUnavailable, true, unavailable(err)
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		if lerr := g.load(ctx); lerr != nil {
			return resultNoScript, false, unavailable(lerr)
		}
		return resultNoScript, true, unavailable(err)
	case redis.HasErrorPrefix(err, "READONLY"):
		g.s.raise(g.s.edition.Load(), "the primary was demoted")
		return resultUnavailable, false, unavailable(err)
	case errors.As(err, &re):
		if transient(re.Error()) {
			return resultUnavailable, false, unavailable(err)
		}
		g.s.o.Logger.Error("a script failed", "script", "group_"+sc.String(), "error", err)
		return resultError, false, unavailable(fmt.Errorf("script group_%s: %w", sc, err))
	case unsent(err), errors.Is(err, errQueued):
		return resultUnavailable, false, unavailable(err)
	}
	return resultUnknown, false, &unknownError{unavailable(err)}
}

func (g *GroupStore) load(ctx context.Context) error {
	put := func(ctx context.Context, c redis.Cmdable) error {
		pipe := c.Pipeline()
		for sc := range groupScripts {
			pipe.ScriptLoad(ctx, g.text[sc])
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	if c, ok := g.s.c.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return put(ctx, n) })
	}
	return put(ctx, g.s.c)
}
