package view

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// The sweeps have a burst of 2000 at 1000/s, which allows leases of half a second.

func TestASweepShowsTheTargetInForce(t *testing.T) {
	// Given targets of which the burst allows one,
	d := Sweep(swept(t, "policy.target=100ms,1s,2s"), "", "")
	text := written(t, d, FormatTable)
	// then the rows of the others show what is in force instead.
	says(t, text, "base          100ms            100ms", "1s            500ms", "2s            500ms")
}

func TestASweepOfAFieldThatMovesTheTargetShowsIt(t *testing.T) {
	text := written(t, Sweep(swept(t, "limits[0]=1000/s burst 2000,1000/s burst 100"), "", ""), FormatTable)
	says(t, text, "target in force", "50ms", "25ms")
}

func TestARunShowsTheTargetInForce(t *testing.T) {
	r := madeUp()
	for target, want := range map[time.Duration]string{
		0: "222.222ms", 200 * time.Millisecond: "200ms", 2 * time.Second: "2s (in force 500ms)",
	} {
		r.Scenario.Policy = lease.Policy{Target: target}
		says(t, written(t, Run(r), FormatTable), "target "+want+",")
	}
	// Also where a large fleet's budget of calls wants longer leases,
	r.Scenario.Policy = lease.Policy{Target: 10 * time.Millisecond, CallsPerSecond: 100}
	says(t, written(t, Run(r), FormatTable), "target 10ms (in force 200ms),")
}

func TestAPlanShowsTheTargetInForce(t *testing.T) {
	p := planned(t)
	p.Chosen.Policy.TargetInForce = "40ms"
	p.TradeOffs[0].Policy.TargetInForce = "70ms"
	says(t, written(t, Plan(p, "", ""), FormatTable), "Take target "+p.Chosen.Policy.Target+" (in force 40ms),",
		p.TradeOffs[0].Policy.Target+" (in force 70ms), ttl ")
}
