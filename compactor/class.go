package compactor

import (
	"strconv"
	"strings"
	"time"

	"github.com/forebaymq/forebay/api"
)

// ClassKeep is the retention class of what no rule of the bucket may delete.
const ClassKeep = "keep"

const day = 24 * time.Hour

// classDays are the days of the retention classes, ascending. Classes are part of object names: one may be added, none renamed.
func classDays() []int { return []int{1, 2, 3, 5, 7, 14, 30, 90, 365} }

// Classes lists the retention classes, shortest first and ClassKeep last. The class is the first element of the key of every object of level
// 1 and higher.
func Classes() []string {
	var out []string
	for _, d := range classDays() {
		out = append(out, className(d))
	}
	return append(out, ClassKeep)
}

func className(days int) string { return "ttl=" + strconv.Itoa(days) + "d" }

// ClassFor gives the class of a topic's objects: the shortest that is no shorter than its retention. Data that only leaves by key or by
// size, and data kept for longer than the longest class, is kept: retention removes it, not a rule.
func ClassFor(c api.TopicConfig) string {
	if !c.Cleanup.Deletes() || c.RetentionTime <= 0 {
		return ClassKeep
	}
	for _, d := range classDays() {
		if c.RetentionTime <= time.Duration(d)*day {
			return className(d)
		}
	}
	return ClassKeep
}

// classAge is how long objects of a class are safe from its rule, not counting the rule's extra day. ok is false for ClassKeep and for
// what is no class.
func classAge(class string) (age time.Duration, ok bool) {
	text, ok := strings.CutPrefix(class, "ttl=")
	if !ok {
		return 0, false
	}
	text, ok = strings.CutSuffix(text, "d")
	if !ok {
		return 0, false
	}
	days, err := strconv.Atoi(text)
	if err != nil || days < 1 || days > 36500 || className(days) != class {
		return 0, false
	}
	return time.Duration(days) * day, true
}

// expiry is the earliest moment at which the rule of its class may delete an object, Unix ms: a class of n days has a rule of n + 1. ok
// is false where no rule ever does.
func expiry(class string, created int64) (ms int64, ok bool) {
	age, ok := classAge(class)
	if !ok {
		return 0, false
	}
	return created + (age + day).Milliseconds(), true
}

// outlives says whether a record of this append time (Unix ms) may still be readable, by the topic's present retention, when the rule could
// delete an object of this class and creation time. Then it has to be copied to a longer class before that.
func outlives(c api.TopicConfig, class string, created, appendTime int64) bool {
	at, ok := expiry(class, created)
	if !ok {
		return false
	}
	if ClassFor(c) == ClassKeep {
		return true
	}
	// Half a day of margin: clocks differ, retention runs in intervals, and a compactor may have been away.
	return appendTime+c.RetentionTime.Milliseconds() > at-day.Milliseconds()/2
}

// moveBy is the latest moment at which the copy should be done, Unix ms: an eighth of the class before its rule could fire, and half a day
// at least. It orders copies; each is made as soon as it is found.
func moveBy(class string, created int64) int64 {
	at, ok := expiry(class, created)
	if !ok {
		return 1<<63 - 1
	}
	age, _ := classAge(class)
	return at - max(age/8, day/2).Milliseconds()
}
