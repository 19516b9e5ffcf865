// Package metafault wraps any metadata.Driver and injects faults: refusals before an effect, answers lost after it, effects that come late,
// delays, and watches that break. Which call gets which fault is decided by a Hook; Random makes one from a seed.
//
// Concurrency: a Driver is as safe for concurrent use as the one it wraps; a Hook is called by one call at a time.
package metafault
