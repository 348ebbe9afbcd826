package arrival

import (
	"math"
	"sort"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// bursts is Pareto: at Poisson moments as many requests at one instant as a Pareto variable of shape Alpha and mean
// Burst says. It is rounded up with the probability of its fraction, otherwise down, which leaves the mean as it is.
// Of a Burst below Alpha/(Alpha-1) some have no request, and are not seen.
type bursts struct {
	stream       *random.Stream
	gap          float64 // between bursts
	least, alpha float64
	at, end      float64
	left         int64 // requests of the burst at at
}

func newBursts(s Source) *bursts {
	return &bursts{
		stream: s.Stream, gap: float64(s.gap() * s.W.Burst), alpha: s.W.Alpha,
		least: float64(s.W.Burst * (s.W.Alpha - 1) / s.W.Alpha), // so that Burst is the mean
		at:    float64(s.Start), end: float64(s.Duration),
	}
}

func (a *bursts) Next(now int64) int64 {
	for a.left == 0 {
		if a.at >= a.end {
			return Never
		}
		a.at += float64(a.gap * a.stream.Exp())
		size := float64(a.least * a.stream.Pareto(a.alpha))
		a.left = int64(min(size+a.stream.Float64(), 0x1p53))
	}
	a.left--
	return moment(a.at, now)
}

// streamVolleys names the random stream of what the volleys of all processes have in common. The engine's own streams
// have small numbers.
const streamVolleys uint64 = 1 << 32

// volleys is Sync: at every multiple of every, 0 included, all processes send their requests of that time, spread evenly
// over within, from its beginning.
type volleys struct {
	every, within int64
	size          float64 // mean requests in a volley
	carry         float64
	end           int64

	n          int64 // of the volley
	sent, many int64 // of its requests
}

func newVolleys(s Source) *volleys {
	a := &volleys{every: int64(s.W.Every), within: int64(s.W.Within), end: s.Duration}
	a.size = float64(s.Rate * float64(s.W.Every) / 1e9)
	// A process with half a request in a volley sends one in every other. The processes begin with different fractions,
	// evenly spread, so that the whole fleet's volleys are alike.
	common := random.New(s.Common, streamVolleys)
	a.carry = float64(s.Index)/float64(s.Of) + common.Float64()
	a.begin(s.Start / a.every)
	a.sent = int64(sort.Search(int(a.many), func(i int) bool { return a.moment(int64(i)) >= s.Start }))
	return a
}

// begin makes the n-th volley the present one.
func (a *volleys) begin(n int64) {
	before := math.Floor(float64(float64(n)*a.size) + a.carry)
	after := math.Floor(float64(float64(n+1)*a.size) + a.carry)
	a.n, a.sent, a.many = n, 0, int64(after-before)
}

// moment is that of the i-th request of the volley.
func (a *volleys) moment(i int64) int64 {
	return a.n*a.every + int64(float64(a.within)*(float64(i)/float64(a.many)))
}

func (a *volleys) Next(now int64) int64 {
	for a.sent == a.many {
		if (a.n+1)*a.every >= a.end {
			return Never
		}
		a.begin(a.n + 1)
	}
	a.sent++
	return max(now, a.moment(a.sent-1))
}
