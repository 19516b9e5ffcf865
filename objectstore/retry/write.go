package retry

import (
	"context"
	"errors"
	"slices"

	"github.com/forebaymq/forebay/objectstore"
)

// write is one conditional write over its attempts.
type write struct {
	s         *Store
	key, id   string
	ambiguous bool // an attempt may have had its effect, or may have it yet
	settled   bool // the last error says for certain that the whole call had no effect
}

// PutIfAbsent implements objectstore.Store.
//
// After an attempt of unknown outcome, ErrExists is looked into: a driver that compares IDs has found a rival, but one whose store
// answers without comparing may have met the object of that very attempt.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (info objectstore.Info, err error) {
	w := &write{s: s, key: key, id: id}
	err = s.run(ctx, objectstore.OpPut, func(tryCtx context.Context) (bool, error) {
		var err error
		info, err = s.next.PutIfAbsent(tryCtx, key, body, id)
		err = s.tried(tryCtx, err)
		if !errors.Is(err, objectstore.ErrExists) || objectstore.IsIndefinite(err) {
			return w.again(ctx, err), err
		}
		if !w.ambiguous {
			w.settled = true
			return false, err
		}
		found, statErr := s.next.Stat(tryCtx, key)
		statErr = s.tried(tryCtx, statErr)
		switch {
		case statErr == nil && found.ID == id:
			info = found
			return false, nil
		case statErr == nil:
			w.settled = true // keys are written once: if a rival's object is there, ours never was
			return false, err
		case errors.Is(statErr, objectstore.ErrNotFound):
			return true, err // it was deleted since
		}
		return retriable(ctx, statErr), statErr
	})
	return info, w.conclude(objectstore.OpPut, err)
}

// PutIfMatch implements objectstore.Store.
//
// After an attempt of unknown outcome, a version other than expected may be our own. If it is not, ours may have been replaced in
// turn, so the outcome stays unknown.
func (s *Store) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (info objectstore.Info, err error) {
	w := &write{s: s, key: key, id: id}
	err = s.run(ctx, objectstore.OpPutMatch, func(tryCtx context.Context) (bool, error) {
		var err error
		info, err = s.next.PutIfMatch(tryCtx, key, etag, body, id)
		err = s.tried(tryCtx, err)
		if !w.ambiguous || !errors.Is(err, objectstore.ErrPreconditionFailed) || objectstore.IsIndefinite(err) {
			return w.again(ctx, err), err
		}
		found, statErr := s.next.Stat(tryCtx, key)
		statErr = s.tried(tryCtx, statErr)
		if statErr == nil && found.ID == id {
			info = found
			return false, nil
		}
		if statErr != nil && !errors.Is(statErr, objectstore.ErrNotFound) {
			return retriable(ctx, statErr), statErr
		}
		return false, err
	})
	return info, w.conclude(objectstore.OpPutMatch, err)
}

// again takes note of an attempt's error and says whether another attempt makes sense.
func (w *write) again(ctx context.Context, err error) bool {
	if objectstore.IsIndefinite(err) {
		w.ambiguous = true
		return true // if ctx has ended, run says so: the caller then learns why the call ended as well as that its outcome is unknown
	}
	return errors.Is(err, objectstore.ErrConflict) || retriable(ctx, err)
}

// conclude gives the error of the whole call.
//
// Conflicts without end are reported as unknown, although each refused attempt had no effect: somebody keeps writing this key, and the
// caller must look before it treats its write as one that never was.
func (w *write) conclude(op objectstore.Op, err error) error {
	if err == nil || w.settled {
		return err
	}
	var stop *stopError
	endless := errors.Is(err, objectstore.ErrConflict) && !errors.As(err, &stop)
	if w.ambiguous || endless {
		var unknown *objectstore.OutcomeUnknownError
		if errors.As(err, &unknown) && !errors.As(err, &stop) {
			return err
		}
		return &objectstore.OutcomeUnknownError{Op: string(op), Key: w.key, Cause: err}
	}
	return err
}

// Delete implements objectstore.Store. Only the keys that failed for a passing reason are tried again.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if err := objectstore.ValidateDelete(keys); err != nil {
		return err
	}
	failed := objectstore.KeyErrors{} // for good
	left := keys
	err := s.run(ctx, objectstore.OpDelete, func(tryCtx context.Context) (bool, error) {
		err := s.next.Delete(tryCtx, left...)
		var byKey objectstore.KeyErrors
		if !errors.As(err, &byKey) {
			err = s.tried(tryCtx, err)
			return passing(ctx, err), err
		}
		left = nil // keys that are not in byKey are gone
		passingErrs := objectstore.KeyErrors{}
		for key, err := range byKey {
			err = s.tried(tryCtx, err)
			if passing(ctx, err) {
				left = append(left, key)
				passingErrs[key] = err
			} else {
				failed[key] = err
			}
		}
		slices.Sort(left) // the same requests for the same answers
		return len(left) > 0, passingErrs.OrNil()
	})
	if err == nil {
		return failed.OrNil()
	}
	var byKey objectstore.KeyErrors
	errors.As(err, &byKey)
	var stop *stopError
	stopped := errors.As(err, &stop)
	for _, key := range left {
		switch own := byKey[key]; {
		case own == nil:
			failed[key] = err
		case stopped:
			failed[key] = &stopError{ctxErr: stop.ctxErr, last: own}
		default:
			failed[key] = own
		}
	}
	return failed
}

// passing says whether a key's deletion may be tried again: deleting twice is harmless, so unknown outcomes may.
func passing(ctx context.Context, err error) bool {
	return objectstore.IsIndefinite(err) || errors.Is(err, objectstore.ErrConflict) || retriable(ctx, err)
}
