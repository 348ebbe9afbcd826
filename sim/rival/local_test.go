package rival

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

func TestAStaticSplitDividesByWeight(t *testing.T) {
	// Given 60 tokens at once and 6 per second for weights of 1, 2 and 3
	f := fleetOf(3, lease.PerSecond(6).WithBurst(60))
	f.Weights = []int64{1, 2, 3}
	a := start(t, "static_split", f)
	for p, part := range []int64{10, 20, 30} {
		admits(t, a, 0, p, part)
		admits(t, a, 5*second, p, part/2)
	}
	// A process that joins later has the part of a weight of 1 as well, on top.
	admits(t, a, 5*second, 3, 10)
	if a.RoundTrips() != 0 {
		t.Errorf("%d round trips were made", a.RoundTrips())
	}
}

func TestPartsOfALimitAreExactAndAddUp(t *testing.T) {
	// Given a limit that no three processes can share in whole tokens, each asking in every
	// millisecond
	a := start(t, "static_split", fleetOf(3, lease.Limit{Tokens: 100, Per: 7 * time.Second, Burst: 20}))
	var admitted [3]int64
	const end = 101 * second
	for now := int64(0); now <= end; now += ms {
		for p := range admitted {
			for a.Decide(now, p, 0, 1) {
				admitted[p]++
			}
		}
	}
	// Then each has floor(20/3 + 101 s * 100/7s / 3) tokens in the end.
	earned := new(big.Rat).Add(big.NewRat(20, 3), big.NewRat(101*100, 7*3))
	want := new(big.Int).Div(earned.Num(), earned.Denom()).Int64()
	if admitted != [3]int64{want, want, want} {
		t.Errorf("the processes were admitted %d, want %d each", admitted, want)
	}
}

func TestASplitBurstIsAtLeastOneToken(t *testing.T) {
	// Given a burst of 5 for 20 processes
	a := start(t, "static_split", fleetOf(20, tenPerSecond))
	// Then 20 are admitted at once, and the next to each after N/R.
	for p := range 20 {
		admits(t, a, 0, p, 1)
		admits(t, a, 2*second-1, p, 0)
	}
	admits(t, a, 2*second, 7, 1)
}

func TestLocalBatchesExceedTheBoundByAllButOneOfEveryBatch(t *testing.T) {
	for _, batch := range []int64{1, 2, 10, 50} {
		const processes = 8
		limit := lease.PerSecond(100).WithBurst(500)
		a := start(t, fmt.Sprintf("local_batches:%d", batch), fleetOf(processes, limit))
		// Given that every process has used one token of a batch, and the bucket is full again a
		// day later
		for p := range processes {
			if !a.Decide(0, p, 0, 1) {
				t.Fatal("the first request was refused")
			}
		}
		// When all come at once
		w := worstExcess{limit: limit}
		for p := range processes {
			w.admit(86_400*second, burst(a, 86_400*second, p))
		}
		// Then what they hold is admitted on top of the burst.
		if want := processes * (batch - 1); w.tokens() != want {
			t.Errorf("batches of %d: the bound is exceeded by %d, want %d", batch, w.tokens(), want)
		}
	}
}

func TestLocalBatchesAskOncePerBatch(t *testing.T) {
	// Given batches of 10 from a bucket of 25
	a := start(t, "local_batches:10", fleetOf(1, lease.PerSecond(1).WithBurst(25)))
	for i := range int64(25) {
		if !a.Decide(0, 0, 0, 1) || a.RoundTrips() != i/10+1 {
			t.Fatalf("after %d requests there were %d round trips", i+1, a.RoundTrips())
		}
	}
	// When the last, partial one is spent, then every further request asks again, in vain.
	if got := burst(a, 0, 0); got != 0 || a.RoundTrips() != 3+1000 {
		t.Errorf("%d more were admitted, with %d round trips; want 0 with 1003", got, a.RoundTrips())
	}
	// A request for more than a batch draws what it lacks.
	if !a.Decide(25*second, 0, 0, 1) || !a.Decide(25*second, 0, 0, 20) || a.RoundTrips() != 1005 {
		t.Errorf("20 were refused of 24, or %d round trips were made, want 1005", a.RoundTrips())
	}
	// That leaves 25-10-11 in the bucket, which is less than a request for 5 needs, and stays.
	if a.Decide(25*second, 0, 0, 5) || burst(a, 25*second, 0) != 4 {
		t.Error("4 tokens must be left, and not be lost by a request for 5")
	}
}

func TestAStockIsNotSpentOnMoreThanABurst(t *testing.T) {
	for _, limits := range [][]lease.Limit{{tenPerSecond, lease.PerSecond(100)}, {lease.PerSecond(100), tenPerSecond}} {
		// Given a process that holds 4 tokens, and can draw 5
		a := start(t, "local_batches:5", fleetOf(1, limits...))
		a.Decide(0, 0, 0, 1)
		// Then 6 are refused nevertheless, as by every other algorithm, and 5 are not.
		if a.Decide(second, 0, 0, 6) || !a.Decide(second, 0, 0, 5) {
			t.Errorf("%v: of a burst of 5, 6 were admitted or 5 were not", limits)
		}
	}
}

func TestTheDefaultBatchIsAHundredMillisecondsOfAProcessesPart(t *testing.T) {
	fast, slow := lease.PerSecond(10_000), lease.PerMinute(60_000)
	for _, c := range []struct {
		fleet Fleet
		want  int64
	}{
		{fleetOf(1, fast), 1000},
		{fleetOf(7, fast), 142},
		{fleetOf(1, fast, slow), 100},
		{fleetOf(1, slow, fast), 100},
		{fleetOf(200, lease.PerSecond(10)), 1},
		{fleetOf(1, lease.Limit{Tokens: 1 << 40, Per: time.Microsecond, Burst: 1}), 100_000 << 40},
	} {
		if got := start(t, "local_batches", c.fleet).(*localBatches).batch; got != c.want {
			t.Errorf("%v, %d processes: the batch is %d, want %d", c.fleet.Limits, c.fleet.Processes, got, c.want)
		}
	}
}
