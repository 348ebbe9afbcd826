package arrival

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const (
	arrivalsRate = 50.0
	arrivalsSpan = 10_000 * time.Second // half a million requests
)

// stream is a source with a random stream of its own.
func newSource(kind string, seed uint64) Source {
	w := scenario.Workload{Kind: kind}.Defaults(arrivalsSpan)
	r := random.New(seed, 11)
	return Source{Workload: &w, Rate: arrivalsRate, Of: 1, Duration: int64(arrivalsSpan), Stream: &r, Common: 1}
}

// moments is all requests of a run.
func moments(s Source) (all []int64) {
	a := New(s)
	for now := a.Next(s.Start); now < s.Duration; now = a.Next(now) {
		all = append(all, now)
	}
	return all
}

// kind is a stream with all it needs for short tests, and the variance of its count over the mean.
type kind struct {
	set        func(*scenario.Workload)
	dispersion float64
}

func kinds() map[string]kind {
	asIs := func(*scenario.Workload) {}
	return map[string]kind{
		scenario.Constant: {asIs, 0},
		scenario.Poisson:  {asIs, 1},
		// 1 + 2 L a/(a+b)^2 with the rate L while on, and a and b the rates at which on and off end.
		scenario.OnOff: {asIs, 1 + 2*10*arrivalsRate*10/math.Pow(10+1/0.9, 2)},
		scenario.Flash: {func(w *scenario.Workload) {
			w.At, w.For, w.Factor = 5000*time.Second,
				1000*time.Second, 10
		}, 1},
		scenario.Sync:     {func(w *scenario.Workload) { w.Within = 100 * time.Millisecond }, 0},
		scenario.Boundary: {func(w *scenario.Workload) { w.Within = 100 * time.Millisecond }, 0},
	}
}

// A process that starts late, or again, gets what it would have got from then on.
func TestEveryStreamHasItsMeanRate(t *testing.T) {
	const later = 5600 * time.Second // in the flash
	for name, kind := range kinds() {
		for _, start := range []time.Duration{0, later} {
			s := newSource(name, 1)
			kind.set(s.Workload)
			s.Start = int64(start)
			all := moments(s)
			testkit.Check(t, all[0] >= s.Start && slices.IsSorted(all),
				"%s: requests go back in time, or come before the start at %v", name, start)
			want := arrivalsRate * (arrivalsSpan - start).Seconds()
			if name == scenario.Flash {
				want += 9 * arrivalsRate * (6000*time.Second - max(start, 5000*time.Second)).Seconds()
			}
			sigma := math.Sqrt(want * kind.dispersion)
			if got := float64(len(all)); math.Abs(got-want) > 6*sigma+1 {
				t.Errorf("%s: %v requests from %v on, want %v within %.0f", name, got, start, want, 6*sigma+1)
			}
		}
	}
}

// Starts that follow each other closely, as in a fleet that is scaled up and down, must not change
// the mean: a stream that begins with a whole interval, or always on, would.
func TestManyStartsKeepTheMeanRate(t *testing.T) {
	const span = 15 * time.Millisecond // below the mean time between two requests
	for _, name := range []string{scenario.Constant, scenario.Poisson, scenario.OnOff} {
		s := newSource(name, 3)
		kinds()[name].set(s.Workload)
		var sum, squares float64
		const n = 100_000
		for i := range int64(n) {
			s.Start = i * int64(span)
			s.Duration = s.Start + int64(span)
			c := float64(len(moments(s)))
			sum, squares = sum+c, squares+c*c
		}
		mean := sum / n
		sigma := math.Sqrt((squares/n - mean*mean) / n)
		if want := arrivalsRate * span.Seconds(); math.Abs(mean-want) > 6*sigma {
			t.Errorf("%s: %.4f requests after a start, want %.4f within %.4f", name, mean, want, 6*sigma)
		}
	}
}

// counts is the requests in each of the windows of one length.
func countsIn(all []int64, window time.Duration) []float64 {
	counts := make([]float64, arrivalsSpan/window)
	for _, at := range all {
		counts[at/int64(window)]++
	}
	return counts
}

// dispersion is the variance of counts over their mean, and its standard error, from ten parts of the run.
func dispersion(counts []float64) (index, stderr float64) {
	var parts []float64
	for part := range slices.Chunk(counts, len(counts)/10) {
		var sum, squares float64
		for _, c := range part {
			sum, squares = sum+c, squares+c*c
		}
		mean := sum / float64(len(part))
		parts = append(parts, (squares/float64(len(part))-mean*mean)/mean)
	}
	var sum, squares float64
	for _, p := range parts {
		sum, squares = sum+p, squares+p*p
	}
	n := float64(len(parts))
	return sum / n, math.Sqrt((squares/n - sum*sum/n/n) / (n - 1))
}

func TestEveryStreamIsAsUnevenAsItShouldBe(t *testing.T) {
	const window = time.Second
	for name, want := range map[string]float64{
		scenario.Constant: 0,
		scenario.Poisson:  1,
		// As in kinds, over a window w: the second part times 1 - (1-e^-cw)/cw with c = a+b.
		scenario.OnOff: 1 + 2*10*arrivalsRate*10/math.Pow(100/9., 2)*(1-(1-math.Exp(-100/9.))/(100/9.)),
		scenario.Sync:  0,
	} {
		s := newSource(name, 4)
		kinds()[name].set(s.Workload)
		got, stderr := dispersion(countsIn(moments(s), window))
		if math.Abs(got-want) > 6*stderr+0.01 {
			t.Errorf("%s: the index of dispersion over %v is %.3f, want %.3f within %.3f", name, window, got, want,
				6*stderr)
		}
	}
}

func TestNoRateIsNoRequests(t *testing.T) {
	for name := range kinds() {
		for _, rate := range []float64{0, 1e-300, 5e-324} {
			s := newSource(name, 8)
			s.Rate = rate
			if got := New(s).Next(0); got != Never {
				t.Errorf("%s: a rate of %g/s has a request at %v", name, rate, time.Duration(got))
			}
		}
	}
}

// The requests of a seed are a promise, as package random's streams are: these are the first 10,000 of each
// kind, and 10,000 draws of each distribution. A machine that rounds anything otherwise fails here.
func TestEveryMachineHasTheSameRequests(t *testing.T) {
	const n = 10_000
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(kinds())) {
		s := newSource(name, 12345)
		a := New(s)
		for i, now := 0, int64(0); i < n; i++ {
			now = a.Next(now)
			fmt.Fprintln(sum, now)
		}
	}
	for _, d := range []scenario.Dist{
		{P: 3}, {Kind: scenario.DistUniform, P: 1, Q: 7}, {Kind: scenario.DistNormal, P: 1e6, Q: 2e5},
		{Kind: scenario.DistExp, P: 1e6, Q: 0}, {Kind: scenario.DistLognormal, P: 5e5, Q: 2e6},
	} {
		r := random.New(1, 12)
		fmt.Fprintf(sum, "%x\n", d.Mean())
		for range n {
			fmt.Fprintf(sum, "%x\n", d.Draw(&r))
		}
	}
	for _, share := range Shares(n, 0.9) {
		fmt.Fprintf(sum, "%x\n", share)
	}
	const want = "93c9e18ae49a9ebdf8c48a3bfb80b62612c9785537e65919c50427e4024d3ce6"
	got := hex.EncodeToString(sum.Sum(nil))
	testkit.Check(t, got == want, "the hash is %s, want %s", got, want)
}

// played lists the requests of a process until the end: "moment key cost", the moment in milliseconds.
func played(r *Recording, process int, start, end time.Duration) (all []string) {
	p := NewReplayer(r, process, int64(start))
	for now := p.Next(int64(start)); now < int64(end); now = p.Next(now) {
		all = append(all, fmt.Sprintf("%d %d %d", now/int64(time.Millisecond), p.Key, p.Cost))
	}
	return all
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestATraceIsReplayed(t *testing.T) {
	// Given requests of processes 0 to 4, a millisecond or more apart, on a fleet of two,
	all := []scenario.TraceRequest{
		{At: milliseconds(10), Process: 0, Key: 7, Cost: 1},
		{At: milliseconds(10), Process: 3, Key: 8, Cost: 2},
		{At: milliseconds(20), Process: 4, Key: 9, Cost: 3},
		{At: milliseconds(30), Process: 1, Key: 7, Cost: 4},
		{At: milliseconds(50), Process: 2, Key: 5, Cost: 5},
	}
	one := []scenario.TraceRequest{{At: milliseconds(5), Key: 1, Cost: 1}}
	for _, c := range []struct {
		what     string
		requests []scenario.TraceRequest
		process  int
		from, to int
		want     []string
	}{
		{"even processes", all, 0, 0, 1000, []string{"10 7 1", "20 9 3", "50 5 5"}},
		{"odd processes", all, 1, 0, 1000, []string{"10 8 2", "30 7 4"}},
		{"a later start", all, 0, 11, 1000, []string{"20 9 3", "50 5 5"}},
		{"a start at a request", all, 0, 20, 1000, []string{"20 9 3", "50 5 5"}},
		{"a start after the end", all, 0, 51, 1000, nil},
		{"an empty trace", nil, 0, 0, 1000, nil},
		{"a process of which the trace knows nothing", one, 1, 0, 1000, nil},
	} {
		// when it is replayed,
		r := NewRecording(&scenario.Trace{Requests: c.requests}, 2)
		got := played(r, c.process, milliseconds(c.from), milliseconds(c.to))
		// then each gets its own.
		testkit.Check(t, slices.Equal(got, c.want), "%s: %q, want %q", c.what, got, c.want)
	}
}
