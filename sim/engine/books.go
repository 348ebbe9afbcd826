package engine

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// books record what is asked and decided. They hold every admission against the promise, compare
// the fleet with one central bucket and with its rivals, and follow every token to where it ends.
type books struct {
	time    *agenda
	central []rival.Central // of each key
	audit   audit.Auditor
	tally   report.Tally
	waits   report.Waits
	rivals  []*contender
	numbers []int // of each process, its number as rivals know it

	requests int64 // ever
	// What follows is counted since the warm-up.
	offered, centralAdmitted int64 // tokens
	offeredBy                []int64
	degraded                 int64 // tokens that were admitted without the store

	conservation
}

// contender is a rival with its books.
type contender struct {
	rival.Algorithm
	audit     audit.Auditor
	tally     report.Tally
	tripsWarm int64 // round trips in the warm-up
}

// newBooks opens the books of a fleet. The rivals number those processes first that run at the
// start.
func newBooks(time *agenda, s *scenario.Scenario, f *fleet) (books, error) {
	keys, processes := s.Keys.Count, len(f.processes)
	b := books{
		time: time, audit: newAuditor(s, s.Policy.Overcommit), tally: report.NewTally(processes, keys),
		waits:   report.NewWaits(s.Duration),
		numbers: make([]int, processes), offeredBy: make([]int64, processes),
	}
	var order []*process
	for _, g := range f.groups {
		order = append(order, g.members[:g.Count]...)
	}
	starting := len(order)
	for _, g := range f.groups {
		order = append(order, g.members[g.Count:]...)
	}
	weights := make([]int64, processes)
	for i, p := range order {
		b.numbers[p.index] = i
		weights[i] = p.group.Weight
	}
	for _, name := range s.Rivals {
		a, err := rival.New(name, rival.Fleet{
			Processes: starting, Weights: weights, Limits: s.Limits, Keys: keys,
			Local: func(p int, now int64) int64 { return order[p].wall(now*1000) - serverStart },
		})
		if err != nil {
			return books{}, fmt.Errorf("%w: rivals: %w", scenario.ErrInvalidScenario, err)
		}
		b.rivals = append(b.rivals, &contender{
			Algorithm: a, audit: newAuditor(s, 0), tally: report.NewTally(processes, keys),
		})
	}
	central, err := rival.NewCentral(s.Limits)
	if err != nil {
		return books{}, err
	}
	b.central = make([]rival.Central, keys)
	for i := range b.central {
		b.central[i] = central
	}
	return b, nil
}

// newAuditor audits promise (1) for every key of s.
func newAuditor(s *scenario.Scenario, overcommit int64) audit.Auditor {
	var bounds []audit.Bound
	for _, l := range s.Limits {
		bounds = append(bounds, audit.Bound{
			Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity(), Overcommit: overcommit,
		})
	}
	return audit.NewAuditor(bounds, s.Keys.Count)
}

// asked books a request, which one central bucket and all rivals decide at once.
func (b *books) asked(r *request) {
	us := b.time.now / 1000
	r.central = b.central[r.key].Take(us, r.n)
	b.requests++
	b.offered += r.n
	if r.central {
		b.centralAdmitted += r.n
	}
	if r.key == 0 {
		b.offeredBy[r.p.index] += r.n
	}
	for _, c := range b.rivals {
		ok := c.Decide(us, b.numbers[r.p.index], int(r.key), r.n)
		if ok {
			c.audit.Admit(b.time.now, r.key, r.n)
		}
		c.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
	}
}

// answered books what became of a request. tokens is how many of the bucket's it was admitted with,
// as opposed to those of Policy.Fallback.
func (b *books) answered(r *request, ok bool, tokens int64) {
	b.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
	if ok {
		b.toRequests += tokens
		b.waits.Add(b.time.now - r.at)
	}
}

// admitted books n tokens that leave a pool for a request at this moment.
func (b *books) admitted(key int32, n int64) { b.audit.Admit(b.time.now, key, n) }

// admittedWithout books n tokens that are admitted without the store.
func (b *books) admittedWithout(key int32, n int64) {
	b.degraded += n
	b.admitted(key, n)
}

// warm ends the warm-up.
func (b *books) warm() {
	b.offered, b.centralAdmitted, b.degraded = 0, 0, 0
	clear(b.offeredBy)
	b.tally.Reset()
	b.waits.Reset()
	for _, c := range b.rivals {
		c.tally.Reset()
		c.tripsWarm = c.RoundTrips()
	}
}
