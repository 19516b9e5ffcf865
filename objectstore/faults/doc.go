// Package faults wraps an object store and makes it fail and dawdle, as told by rules and by a seed.
//
// A rule says which calls it matches (operations, key prefix), which of those it acts on (every nth, with a probability, after the
// first few, at most so many), and what it does: delay by a distribution, fail before the effect, lose the answer after it, make the
// effect come late, or cut what is read. The same seed and the same order of calls give the same faults; each rule draws from a
// generator of its own, so that a rule added does not change what the others do. Counts says what was done.
//
// Rules come from code or from text (Parse):
//
//	seed=1;put:latency=lognormal(80ms,300ms);put:every=3:error=503
//
// S3Like gives the delays of a typical object store. Delays pass on the injected clock.
package faults
