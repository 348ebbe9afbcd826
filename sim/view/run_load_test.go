package view

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestTheSubtitleHasTheLoadsThatGroupsRead(t *testing.T) {
	closed, rate := &sim.Workload{Kind: sim.Closed}, &sim.Workload{Kind: sim.Poisson, Rate: 90}
	for want, groups := range map[string][]sim.Group{
		"load closed and poisson at 90/s,":          {{Workload: closed}, {Workload: rate}, {Workload: rate}},
		"load poisson at 2 × the limit and closed,": {{Name: "a"}, {Name: "b", Workload: closed}},
	} {
		s := sim.Scenario{Groups: groups, Workload: sim.Workload{Kind: sim.Poisson, Load: 2}}
		got := Result{}.subtitle(s)
		testkit.Check(t, strings.Contains(got, want), "%s\nwant %s", got, want)
	}
}
