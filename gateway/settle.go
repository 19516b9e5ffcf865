package gateway

import (
	"net/http"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/gateway/auth"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/leases"
)

// settle serves POST /v1/topics/{topic}/subscriptions/{subscription}/ack, /nack and /extend: a list of receipts in the body, each of which
// gets its own result, or one as a parameter, whose result is the status.
func (s *Server) settle(kind leases.SettleKind, params ...string) func(*request) error {
	known := append([]string{"receipt"}, params...)
	return func(rq *request) error {
		q, err := rq.parseQuery(known...)
		if err != nil {
			return err
		}
		ct, answer, err := rq.encodings()
		if err != nil {
			return err
		}
		n, err := rq.subscription(auth.Consume)
		if err != nil {
			return err
		}
		body, release, err := rq.readBody()
		if err != nil {
			return err
		}
		st, err := wire.DecodeSettle(kind, ct, body)
		release()
		if err != nil {
			return err
		}
		st.Name = n
		if err := settleParams(q, st); err != nil {
			return err
		}
		ctx, cancel := s.within(rq.ctx, s.o.Timeouts.Request)
		defer cancel()
		if _, err := s.queueTopic(ctx, n); err != nil {
			return err
		}
		asked := st.Receipts
		st.Receipts = wellFormed(asked)
		var results []leases.SettleResult
		if len(st.Receipts) > 0 {
			if results, err = s.o.Queues.Settle(ctx, st.SettleRequest); err != nil {
				return queueError(rq, err)
			}
		}
		if len(results) != len(st.Receipts) {
			return api.Errorf(api.CodeInternal, "%d results for %d receipts", len(results), len(st.Receipts))
		}
		if q.has("receipt") {
			return rq.respondSettledOne(st, &results[0], answer)
		}
		if len(results) < len(asked) {
			results = withMalformed(asked, results)
		}
		return rq.respondSettled(st, results, answer)
	}
}

// settleParams adds what stands in the query: the one receipt, and what goes with it.
func settleParams(q query, st *wire.Settle) error {
	if q.has("receipt") {
		receipt := q.get("receipt")
		switch {
		case len(st.Receipts) > 0:
			return invalidField("receipt", "use the parameter for one receipt or the body for a list, not both")
		case !wire.ValidReceipt(receipt):
			return invalidField("receipt", "must be a receipt as a lease gave it: partition:offset:nonce")
		}
		st.Receipts = []string{receipt}
	} else if len(st.Receipts) == 0 {
		return invalidField("/receipts", "is missing: an array of the receipts of a lease, or one as the parameter receipt")
	}
	if q.has("delay") {
		if st.Delay != nil {
			return invalidField("delay", "is in the body as well; give it once")
		}
		d, err := q.duration("delay")
		if err != nil {
			return err
		}
		if err := st.SetDelay("delay", d); err != nil {
			return err
		}
	}
	if q.has("reason") {
		if st.Reason != "" {
			return invalidField("reason", "is in the body as well; give it once")
		}
		st.SetReason(q.get("reason"))
	}
	if q.has("visibility") {
		if st.Visibility != 0 {
			return invalidField("visibility", "is in the body as well; give it once")
		}
		d, err := q.duration("visibility")
		if err != nil {
			return err
		}
		st.SetVisibility(d)
	}
	return nil
}

// wellFormed gives those of list that are receipts at all: list itself when all are.
func wellFormed(list []string) []string {
	for i, receipt := range list {
		if wire.ValidReceipt(receipt) {
			continue
		}
		out := append(make([]string, 0, len(list)), list[:i]...)
		for _, receipt := range list[i+1:] {
			if wire.ValidReceipt(receipt) {
				out = append(out, receipt)
			}
		}
		return out
	}
	return list
}

// withMalformed puts the results of what wellFormed dropped between those of the others.
func withMalformed(asked []string, results []leases.SettleResult) []leases.SettleResult {
	all := make([]leases.SettleResult, 0, len(asked))
	for _, receipt := range asked {
		if wire.ValidReceipt(receipt) {
			all, results = append(all, results[0]), results[1:]
		} else {
			all = append(all, leases.SettleResult{Receipt: receipt, Code: api.CodeInvalidRequest})
		}
	}
	return all
}

func (rq *request) respondSettled(st *wire.Settle, results []leases.SettleResult, answer wire.ContentType) error {
	b := rq.s.buffers.get()
	*b = wire.AppendSettled(*b, answer, results, &st.Clamped)
	err := rq.respond(http.StatusOK, answer.String(), *b)
	rq.s.buffers.put(b)
	return err
}

// respondSettledOne answers for the receipt of the query: 204, for an extension 200 with its end, or the receipt's code.
func (rq *request) respondSettledOne(st *wire.Settle, r *leases.SettleResult, answer wire.ContentType) error {
	switch {
	case r.Code == api.CodeLeaseLost:
		return api.Errorf(api.CodeLeaseLost, "the lease has lapsed, was superseded, or its record was settled otherwise; nothing was changed. A record that is not settled is delivered again")
	case r.Code != "":
		return api.Errorf(r.Code, "the receipt was refused")
	case st.Kind != leases.Extend:
		return rq.noContent()
	case answer == wire.Protobuf:
		return rq.respondSettled(st, []leases.SettleResult{*r}, answer)
	}
	return rq.respondJSON(http.StatusOK, func(b []byte) []byte { return wire.AppendSettledOne(b, r, &st.Clamped) })
}
