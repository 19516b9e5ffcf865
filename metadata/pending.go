package metadata

// Pending is a submitted commit. Done is closed when its outcome is known.
type Pending struct {
	done    chan struct{}
	results []BatchResult
	err     error
}

// NewPending makes a pending commit, for implementations of ingest.Committer.
func NewPending() *Pending {
	return &Pending{done: make(chan struct{})}
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result gives one result a batch, in the order of the commit, or the error for which the whole commit definitely had no effect
// (METADATA_UNAVAILABLE, TOO_LARGE), or OUTCOME_UNKNOWN when the log was closed, or lost sight of the commit, before it knew. Call it after Done.
func (p *Pending) Result() ([]BatchResult, error) { return p.results, p.err }

// Resolve sets the outcome, once.
func (p *Pending) Resolve(results []BatchResult, err error) {
	p.results, p.err = results, err
	close(p.done)
}
