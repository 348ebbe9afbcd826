package scenario

import (
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Defaults is s with every zero field that has a default filled in. A group without a name is
// called by its place in Groups: group-0, group-1 and so on.
func (s Scenario) Defaults() Scenario {
	fill(&s.Duration, 30*time.Second)
	fill(&s.Seed, 1)
	fill(&s.Reps, 10)
	fill(&s.CallTimeout, lease.DefaultCallTimeout)
	fill(&s.Keys.Count, 1)
	groups := s.Groups
	if len(groups) == 0 {
		groups = []Group{{Name: "all"}}
	}
	s.Groups = make([]Group, len(groups))
	for i, g := range groups {
		fill(&g.Name, fmt.Sprintf("group-%d", i))
		fill(&g.Count, 1)
		fill(&g.Weight, max(s.Policy.Weight, 1))
		fill(&g.Share, float64(max(g.Count, 0)))
		if g.Workload != nil {
			w := g.Workload.Defaults(s.Duration)
			g.Workload = &w
		}
		s.Groups[i] = g
	}
	s.Workload = s.Workload.Defaults(s.Duration)
	fill(&s.Network.RoundTrip, Constantly(time.Millisecond))
	fill(&s.Redis.ServiceTime, Constantly(15*time.Microsecond))
	fill(&s.Redis.Shards, 1)
	return s
}

// Defaults is w with every zero field that has a default filled in, for a run of this length.
// Defaults is w with every zero field that has a default filled in, for a run of that duration.
func (w Workload) Defaults(duration time.Duration) Workload {
	fill(&w.Kind, Poisson)
	fill(&w.Verb, VerbAllow)
	if w.Rate == 0 && w.Load == 0 {
		w.Load = 0.9
	}
	fill(&w.Cost, Cost{1, 1})
	fill(&w.Deadline, time.Second)
	fill(&w.On, 100*time.Millisecond)
	fill(&w.Off, 900*time.Millisecond)
	fill(&w.Alpha, 1.5)
	fill(&w.Burst, 20)
	fill(&w.Period, duration)
	fill(&w.Swing, 0.8)
	fill(&w.At, duration/3)
	fill(&w.For, duration/6)
	fill(&w.Factor, 10)
	fill(&w.Every, 500*time.Millisecond)
	fill(&w.Clients, 10)
	fill(&w.Think, DurationDist{Dist{Kind: DistExp, P: float64(100 * time.Millisecond)}})
	fill(&w.Backoff, 10*time.Millisecond)
	return w
}

// fill sets a zero value to its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
