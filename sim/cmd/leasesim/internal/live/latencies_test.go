package live

import (
	"encoding/json"
	"math"
	"sync"
	"testing"
	"time"
)

func TestWhatEveryProcessTookIsMerged(t *testing.T) {
	// Given two processes, whose goroutines observe 1 to 1000 us and 1001 to 2000 us, and one that
	// tells nothing,
	all := newLatencies()
	for process := range 3 {
		own := newLatencies()
		var wg sync.WaitGroup
		for us := range time.Duration(1000) {
			if process < 2 {
				wg.Go(func() { own.observe(own.decisions, time.Duration(process)*time.Millisecond + (us+1)*time.Microsecond) })
			}
		}
		wg.Wait()
		// when each tells it as JSON,
		text, err := json.Marshal(own.told())
		if err != nil {
			t.Fatal(err)
		}
		var heard told
		if err := json.Unmarshal(text, &heard); err != nil {
			t.Fatal(err)
		}
		all.merge(heard)
	}
	all.merge(told{}) // of one that was killed
	// then the median and the slowest hundredth are those of all, within 1 %.
	got := quantilesOf(all.decisions)
	if off := math.Abs(float64(got.P50)/1e6 - 1); off > 0.01 {
		t.Errorf("the median is %v", time.Duration(got.P50))
	}
	if trips := quantilesOf(all.roundTrips); trips != (Quantiles{}) {
		t.Errorf("there are round trips: %+v", trips)
	}
	if off := math.Abs(float64(got.P99)/1.98e6 - 1); off > 0.01 {
		t.Errorf("the 99th percentile is %v", time.Duration(got.P99))
	}
}

func TestDurationsOutOfRangeCountAsTheNearest(t *testing.T) {
	l := newLatencies()
	l.observe(l.decisions, -time.Second)
	l.observe(l.decisions, time.Hour)
	if got := quantilesOf(l.decisions); got.P50 != 0 || got.P99 < int64(longest) || got.P99 > int64(longest)*101/100 {
		t.Errorf("%+v", got)
	}
}
