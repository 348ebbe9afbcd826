package arrival

import (
	"math"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// poisson implements scenario.Poisson: independent requests.
type poisson struct {
	stream *random.Stream
	gap    float64 // mean gap in nanoseconds
	at     float64 // with fractions of a nanosecond, which matter for a rate near 1/ns
}

func (a *poisson) Next(now int64) int64 {
	a.at += float64(a.gap * a.stream.Exp())
	return moment(a.at, now)
}

// onOff implements scenario.OnOff: an interrupted Poisson process. The remainder of an exponential time has
// the same distribution as the whole time, so onOff draws the time to the next request again at every change
// of the rate, and at the start.
type onOff struct {
	stream  *random.Stream
	gap     float64 // mean gap while on
	on, off float64 // mean lengths
	at      float64
	until   float64 // end of the phase in which requests come
	end     float64
}

func newOnOff(s Source) *onOff {
	on, off := float64(s.Workload.On), float64(s.Workload.Off)
	part := on / (on + off)
	a := &onOff{
		stream: s.Stream, gap: float64(s.gap() * part), on: on, off: off,
		at: float64(s.Start), end: float64(s.Duration),
	}
	if !a.stream.Bernoulli(part) {
		a.at += float64(off * a.stream.Exp())
	}
	a.until = a.at + float64(on*a.stream.Exp())
	return a
}

func (a *onOff) Next(now int64) int64 {
	for a.at < a.end {
		if at := a.at + float64(a.gap*a.stream.Exp()); at < a.until {
			a.at = at
			return moment(at, now)
		}
		a.at = a.until + float64(a.off*a.stream.Exp())
		a.until = a.at + float64(a.on*a.stream.Exp())
	}
	return Never
}

// flash implements scenario.Flash: Poisson requests at a rate that is Factor times higher from At for For.
type flash struct {
	stream     *random.Stream
	gap, crowd float64 // mean gaps without and with the crowd
	from, to   float64
	at         float64
}

func newFlash(s Source) *flash {
	return &flash{
		stream: s.Stream, gap: s.gap(), crowd: s.gap() / s.Workload.Factor,
		from: float64(s.Workload.At), to: float64(s.Workload.At + s.Workload.For), at: float64(s.Start),
	}
}

func (a *flash) Next(now int64) int64 {
	for {
		gap, until := a.gap, math.Inf(1)
		switch {
		case a.at < a.from:
			until = a.from
		case a.at < a.to:
			gap, until = a.crowd, a.to
		}
		at := a.at + float64(gap*a.stream.Exp())
		if at < until || until > Never {
			a.at = at
			return moment(at, now)
		}
		a.at = until
	}
}
