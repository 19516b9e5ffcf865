package fetch

import (
	"bytes"
	"context"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func TestOffsetForTime(t *testing.T) {
	w := newWorld(t)
	var records []segment.Record
	for _, o := range []int64{0, 1, 4, 7} {
		r := rec("k", "v")
		r.Offset, r.AppendTime = o, testNow+o*10 // 0, 10, 40, 70
		records = append(records, r)
	}
	w.replace(w.compacted(records...))
	w.view.set(func() { w.view.info.Head = 8 })
	w.time = testNow + 100
	w.commit(values("a", "b")) // 8 and 9 at 100
	w.time = testNow + 100
	w.commit(values("c")) // 10 at 100
	w.time = testNow + 200
	w.commit(values("d")) // 11 at 200
	f := w.fetcher(Options{})
	check := func(ms, want int64) {
		t.Helper()
		offset, found, err := f.OffsetForTime(context.Background(), testTopic, testPartition, testNow+ms)
		if err != nil || found != (want >= 0) || found && offset != want {
			t.Errorf("at %d: %d %v %v, want %d", ms, offset, found, err, want)
		}
	}
	for ms, want := range map[int64]int64{-1000: 0, 0: 0, 1: 1, 10: 1, 11: 4, 40: 4, 41: 7, 70: 7, 71: 8, 100: 8, 101: 11, 200: 11, 201: -1} {
		check(ms, want)
	}
	if w.view.syncs != 13 {
		t.Errorf("%d barriers for 13 lookups", w.view.syncs)
	}
	w.view.set(func() { w.view.info.LogStart = 2 }) // retention cut the sparse batch
	check(0, 4)
	check(10, 4)
	check(41, 7)
	w.view.set(func() { w.view.info.LogStart, w.view.entries = 9, w.view.entries[1:] })
	check(0, 9)
}

func TestOffsetForTimeFaults(t *testing.T) {
	w := newWorld(t)
	f := w.fetcher(Options{})
	ctx := context.Background()
	if _, _, err := f.OffsetForTime(ctx, testTopic+1, testPartition, 0); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Error(err)
	}
	if _, found, err := f.OffsetForTime(ctx, testTopic, testPartition, 0); err != nil || found {
		t.Errorf("an empty partition: %v %v", found, err)
	}
	a, b := rec("k", "a"), rec("k", "b")
	a.AppendTime, b.AppendTime, b.Offset = testNow, testNow+10, 1
	e := w.compacted(a, b)
	w.replace(e)
	w.view.set(func() { w.view.info.Head = 2 })
	w.store.fault = func(_ string, off int64, body []byte, err error) ([]byte, error) {
		body = bytes.Clone(body)
		body[int64(e.Ref.Pos)-off+30] ^= 1
		return body, err
	}
	_, _, err := f.OffsetForTime(ctx, testTopic, testPartition, testNow+5)
	wantUnreadable(t, err, api.CodeInternal, 0, 2)
	w.store.fault = nil
	if err := w.store.Delete(ctx, w.lastKey); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.OffsetForTime(ctx, testTopic, testPartition, testNow+5)
	wantUnreadable(t, err, api.CodeStorageUnavailable, 0, 2)
	w.view.syncErr = api.Errorf(api.CodeMetadataUnavailable, "no quorum")
	if _, _, err = f.OffsetForTime(ctx, testTopic, testPartition, 0); api.CodeOf(err) != api.CodeMetadataUnavailable {
		t.Error(err)
	}
}
