package audit

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// windowBound draws a sliding window or a calendar, of a length that a few events fit in.
func windowBound(rng *rand.Rand) Bound {
	b := Bound{Tokens: 1 + rng.Int64N(1+rng.Int64N(80)), Per: time.Duration(1 + rng.Int64N(30)),
		Overcommit: rng.Int64N(3),
		Kind:       lease.KindSliding}
	if rng.IntN(2) == 0 {
		b.Kind, b.Offset = lease.KindCalendar, time.Duration(rng.Int64N(int64(b.Per)))
	}
	return b
}

// together reports whether two moments lie in one window of b.
func (b Bound) together(first, last int64) bool {
	if b.Kind == lease.KindBucket {
		return true
	}
	if b.Kind == lease.KindSliding {
		return last-first < int64(b.Per)
	}
	for t := first; t <= last; t++ {
		if t > first && (t-int64(b.Offset))%int64(b.Per) == 0 {
			return false // a period begins here
		}
	}
	return true
}

// TestTheWorstWindowOfSpansAgreesWithANaiveScan: over all pairs of a beginning and an end.
func TestTheWorstWindowOfSpansAgreesWithANaiveScan(t *testing.T) {
	rng := testkit.Rand(t)
	exceeded := 0
	for range 5000 {
		spans, _ := worlds[1+rng.IntN(2)].draw(rng)
		b := windowBound(rng)
		most := int64(0)
		for _, first := range spans {
			for _, last := range spans {
				if first.Before <= last.After && b.together(first.Before, last.After) {
					most = max(most, count(spans, first.Before, last.After))
				}
			}
		}
		w := worst(t, b, spans...)
		testkit.Must(t, w.Admitted == most && w.ExceededBy == max(0, most-b.ceiling()),
			"the verdict is %+v, the scan says %d\nbound %+v\n%+v", w, most, b, spans)
		if most > 0 {
			testkit.Must(t, count(spans, w.From, w.To) == most && b.together(w.From, w.To),
				"%+v is no window with %d\nbound %+v\n%+v", w, most, b, spans)
		}
		if w.ExceededBy > 0 {
			exceeded++
		}
	}
	testkit.Check(t, exceeded > 500 && exceeded < 4500, "%d exceeded: the draw is lopsided", exceeded)
}

// TestARunRemembersNoMoreThanItsWindow, nor a calendar more than a moment.
func TestARunRemembersNoMoreThanItsWindow(t *testing.T) {
	sliding, calendar := NewMeter(Of(lease.Sliding(1, time.Second), 0)),
		NewMeter(Of(lease.Calendar(1, time.Hour, 0), 0))
	for at := range int64(100_000) {
		sliding.Admit(at*ms, 1)
		calendar.Admit(at*ms, 1)
	}
	testkit.Check(t, cap(sliding.window.used.line) < 5000, "the window takes %d points",
		cap(sliding.window.used.line))
	testkit.Check(t, cap(calendar.window.used.line) <= 4, "the calendar takes %d points",
		cap(calendar.window.used.line))
}
