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
				wg.Go(func() { own.Decisions.observe(time.Duration(process)*time.Millisecond + (us+1)*time.Microsecond) })
			}
		}
		wg.Wait()
		// when each tells it as JSON,
		text, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		told := newLatencies()
		if err := json.Unmarshal(text, told); err != nil {
			t.Fatal(err)
		}
		all.merge(told)
	}
	// then the median and the slowest hundredth are those of all, within 1 %.
	got := all.Decisions.quantiles()
	if off := math.Abs(float64(got.P50)/1e6 - 1); off > 0.01 {
		t.Errorf("the median is %v", time.Duration(got.P50))
	}
	if all.RoundTrips.quantiles() != (Quantiles{}) {
		t.Errorf("there are round trips: %+v", all.RoundTrips.quantiles())
	}
	if off := math.Abs(float64(got.P99)/1.98e6 - 1); off > 0.01 {
		t.Errorf("the 99th percentile is %v", time.Duration(got.P99))
	}
}

func TestDurationsOutOfRangeCountAsTheNearest(t *testing.T) {
	d := newDurations()
	if d.quantiles() != (Quantiles{}) {
		t.Errorf("nothing took %+v", d.quantiles())
	}
	d.observe(-time.Second)
	d.observe(time.Hour)
	if got := d.quantiles(); got.P50 != 0 || got.P99 < int64(longest) || got.P99 > int64(longest)*101/100 {
		t.Errorf("%+v", got)
	}
}
