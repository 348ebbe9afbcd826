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
	for p, want := range []int64{10, 20, 30} {
		if got := burst(a, 0, p); got != want {
			t.Errorf("process %d was admitted %d at once, want %d", p, got, want)
		}
		if got := burst(a, 5*second, p); got != want/2 {
			t.Errorf("process %d was admitted %d after 5 s, want %d", p, got, want/2)
		}
	}
	// A process that joins later has the part of a weight of 1 as well, on top.
	if got := burst(a, 5*second, 3); got != 10 {
		t.Errorf("a later process was admitted %d at once, want 10", got)
	}
	if a.RoundTrips() != 0 {
		t.Errorf("%d round trips were made", a.RoundTrips())
	}
}

func TestPartsOfALimitAreExactAndAddUp(t *testing.T) {
	// Given a limit that no three processes can share in whole tokens, each asking in every
	// millisecond
	limit := lease.Limit{Tokens: 100, Per: 7 * time.Second, Burst: 20}
	a := start(t, "static_split", fleetOf(3, limit))
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
	for p, got := range admitted {
		if got != want {
			t.Errorf("process %d was admitted %d, want %d", p, got, want)
		}
	}
}

func TestASplitBurstIsAtLeastOneToken(t *testing.T) {
	// Given a burst of 5 for 20 processes
	a := start(t, "static_split", fleetOf(20, tenPerSecond))
	var at0, at1 int64
	for p := range 20 {
		at0 += burst(a, 0, p)
		at1 += burst(a, 2*second-1, p)
	}
	// Then 20 are admitted at once, and the next to each after N/R.
	if at0 != 20 || at1 != 0 || burst(a, 2*second, 7) != 1 {
		t.Errorf("%d were admitted at once and %d before 2 s, want 20 and 0, and 1 at 2 s", at0, at1)
	}
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
		w := worstExcess{limit: limit}
		// When all come at once
		for p := range processes {
			for range 1000 {
				if a.Decide(86_400*second, p, 0, 1) {
					w.admit(86_400*second, 1)
				}
			}
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
	cases := []struct {
		limits    []lease.Limit
		processes int
		want      int64
	}{
		{[]lease.Limit{lease.PerSecond(10_000)}, 1, 1000},
		{[]lease.Limit{lease.PerSecond(10_000)}, 7, 142},
		{[]lease.Limit{lease.PerSecond(10_000), lease.PerMinute(60_000)}, 1, 100},
		{[]lease.Limit{lease.PerMinute(60_000), lease.PerSecond(10_000)}, 1, 100},
		{[]lease.Limit{lease.PerSecond(10)}, 200, 1},
		{[]lease.Limit{{Tokens: 1 << 40, Per: time.Microsecond, Burst: 1}}, 1, 100_000 << 40},
	}
	for _, c := range cases {
		a := start(t, "local_batches", fleetOf(c.processes, c.limits...)).(*localBatches)
		if a.batch != c.want {
			t.Errorf("%v, %d processes: the batch is %d, want %d", c.limits, c.processes, a.batch, c.want)
		}
	}
}
