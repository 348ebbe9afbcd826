package arrival

import (
	"math"
	"sort"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// streamVolleys identifies the random stream that the volleys of all processes share. No stream of the engine
// has this number.
const streamVolleys uint64 = 1 << 32

// volleys implements scenario.Sync: at every multiple of Every, including 0, all processes send the requests
// of one interval. The requests of a volley are spread evenly over Within, starting at the multiple, or for
// scenario.Boundary centred on the multiple.
type volleys struct {
	every, within int64
	ahead         int64   // time from the start of a volley to its multiple of Every
	size          float64 // mean requests in a volley
	carry         float64
	end           int64

	n          int64 // number of the current volley
	sent, many int64 // requests of the current volley: sent so far, and in all
}

func newVolleys(s Source) *volleys {
	a := &volleys{every: int64(s.Workload.Every), within: int64(s.Workload.Within), end: s.Duration}
	if s.Workload.Kind == scenario.Boundary {
		a.ahead = a.within / 2
	}
	a.size = float64(s.Rate * float64(s.Workload.Every) / 1e9)
	// A process with half a request per volley sends one request in every other volley. Each process starts
	// with another fraction of a request left over, so that all volleys of the fleet have the same size.
	common := random.New(s.Common, streamVolleys)
	a.carry = float64(s.Index)/float64(s.Of) + common.Float64()
	a.begin((s.Start + a.ahead) / a.every)
	a.sent = int64(sort.Search(int(a.many), func(i int) bool { return a.moment(int64(i)) >= s.Start }))
	return a
}

func (a *volleys) begin(n int64) {
	before := math.Floor(float64(float64(n)*a.size) + a.carry)
	after := math.Floor(float64(float64(n+1)*a.size) + a.carry)
	a.n, a.sent, a.many = n, 0, int64(after-before)
}

func (a *volleys) moment(i int64) int64 {
	return a.n*a.every - a.ahead + int64(float64(a.within)*(float64(i)/float64(a.many)))
}

func (a *volleys) Next(now int64) int64 {
	for a.sent == a.many {
		if (a.n+1)*a.every-a.ahead >= a.end {
			return Never
		}
		a.begin(a.n + 1)
	}
	a.sent++
	return max(now, a.moment(a.sent-1))
}
