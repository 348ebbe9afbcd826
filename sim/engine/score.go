package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// class is what became of the requests of the groups with one headroom, in tokens since the
// warm-up.
type class struct {
	headroom                    float64
	groups                      []string
	offered, admitted, shadowed int64
}

// score is what one algorithm decided: the fleet's, or a rival's.
type score struct {
	audit    audit.Auditor
	tally    report.Tally
	accuracy report.Accuracy
}

// decided is what the central bucket, which has admitted so many tokens, and s have decided.
func (s *score) decided(central int64) report.Decided {
	t := &s.tally
	return report.Decided{Central: central, Admitted: t.Admitted, FalseRejects: t.FalseRejects, Credit: t.Credit}
}

// contender is a rival with its score.
type contender struct {
	score
	rival.Algorithm         // what decides at once, where the request is made; nil in the other case
	remote          *remote // what asks Redis for each request
	tripsWarm       int64   // round trips in the warm-up
}

// trips is its round trips since the warm-up.
func (c *contender) trips() int64 {
	if c.remote != nil {
		return c.remote.sent
	}
	return c.RoundTrips() - c.tripsWarm
}

// decided books that it has decided a request at a time.
func (c *contender) decided(r *request, at int64, ok bool) {
	if ok {
		c.audit.Admit(at, r.key, r.n)
	}
	c.tally.Decided(r.p.index, r.key, r.n, r.central, ok)
}

// classesOf tells the groups their classes, those that leave least in the bucket first. There are
// none where all are alike.
func classesOf(groups []*group) (classes []class) {
	for _, g := range slices.SortedStableFunc(slices.Values(groups), func(a, b *group) int {
		return cmp.Compare(a.Headroom, b.Headroom)
	}) {
		if n := len(classes); n == 0 || classes[n-1].headroom != g.Headroom {
			classes = append(classes, class{headroom: g.Headroom})
		}
		g.class = len(classes) - 1
		classes[g.class].groups = append(classes[g.class].groups, g.Name)
	}
	if len(classes) < 2 {
		return nil
	}
	return classes
}

// fromStart is limits with the periods of calendars as they are by the time since the start of the
// run.
func fromStart(limits []lease.Limit) []lease.Limit {
	limits = slices.Clone(limits)
	for i, l := range limits {
		if l.Kind == lease.KindCalendar {
			limits[i].Offset = (l.Offset - serverStart*time.Microsecond%l.Per + l.Per) % l.Per
		}
	}
	return limits
}

// newScore audits the promise of each limit for every key of s.
func newScore(s *scenario.Scenario, f *fleet, overcommit int64) score {
	var bounds []audit.Bound
	for _, l := range fromStart(s.Limits) {
		bounds = append(bounds, audit.Of(l, overcommit))
	}
	return score{
		audit: audit.NewAuditor(bounds, s.Keys.Count), tally: report.NewTally(len(f.processes), s.Keys.Count),
	}
}
