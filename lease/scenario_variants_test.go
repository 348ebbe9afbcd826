package lease

import (
	"testing"
	"time"
)

// expectNeeded tells story with the bucket as designed and with the rule switched off, and expects (1) to break only in
// the second telling.
func expectNeeded(t *testing.T, v variant, story func(*scene)) {
	t.Helper()
	for _, switched := range []variant{asDesigned, v} {
		probe := new(testing.T) // collects the failure
		s := newScene(probe, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 70*time.Microsecond)
		s.bucket.variant = switched
		story(s)
		if broken := s.meter.peak > s.meter.capacity*meterUnit; broken != (switched == v) {
			t.Errorf("variant %d: the worst window held %d millionths of a token, B + E is %d", switched, s.meter.peak/1000, s.meter.capacity)
		}
	}
}

// TestClipIsNeeded: without the clip a lower Overcommit leaves a full level beside full holdings, for as long as they
// are renewed.
func TestClipIsNeeded(t *testing.T) {
	expectNeeded(t, variantNoClip, func(s *scene) {
		// given E = 2, and a holder with as much as B while the level is full
		s.config.Overcommit = 2
		a, b := s.holder("a"), s.holder("b")
		s.calls(a, Ask{Want: 2})
		s.now += 10
		s.calls(a, Ask{})
		// when E becomes 0, the holder renews, and everything that the old limit admitted has drained
		s.config.Overcommit = 0
		if _, err := s.bucket.Configure(s.now, OpSet, s.config); err != nil {
			s.t.Fatal(err)
		}
		for range 10 {
			s.now += 20
			s.calls(a, Ask{})
		}
		s.meter.advance(s.now)
		// then the level and the holding are not there at once
		s.calls(b, Ask{Want: 2, Waiting: 2})
		s.spends(a)
	})
}

// TestVoidReportMayNotReturn: a record that knows of less than the holder reports is from another life of it.
// What it gives back has run out already, and the time since was refilled.
func TestVoidReportMayNotReturn(t *testing.T) {
	expectNeeded(t, variantVoidAsKnown, func(s *scene) {
		// given a holder with everything, which sends two calls shortly before its deadline; both are slow
		a, b := s.holder("a"), s.holder("b")
		s.calls(a, Ask{Want: 2})
		s.now += 60
		asks := s.opens(a, Ask{})
		gives := s.opens(a, Ask{Return: everything})
		// when its entry has run out, somebody draws what was refilled, and then the calls arrive
		s.now += 60
		s.calls(b, Ask{Want: 2, Waiting: 2})
		s.executes(asks)
		s.executes(gives)
		// then what was given back is not there a second time
		s.calls(b, Ask{Want: 2, Waiting: 2})
	})
}
