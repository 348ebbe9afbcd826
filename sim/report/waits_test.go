package report

import (
	"testing"
	"time"
)

func TestWaitQuantilesOfKnownWaits(t *testing.T) {
	ms := func(from, to int) (all []time.Duration) {
		for n := from; n <= to; n++ {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	none := func(n int) []time.Duration { return make([]time.Duration, n) }
	for _, c := range []struct {
		what          string
		waits         []time.Duration
		p50, p99, max float64
	}{
		{"nobody", nil, 0, 0, 0},
		{"nobody waited", none(10), 0, 0, 0},
		{"one", ms(7, 7), 7, 7, 7},
		{"1 to 100 ms", ms(1, 100), 50, 99, 100},
		{"1 to 160 ms", ms(1, 160), 80, 159, 160}, // 99 % are 158.4
		{"1 to 200 ms", ms(1, 200), 100, 198, 200},
		{"one of two", append(ms(4, 4), 0), 0, 4, 4},
		{"one of a hundred", append(ms(4, 4), none(99)...), 0, 0, 4},
		{"two of a hundred", append(ms(4, 5), none(98)...), 0, 4, 5},
		{"fifty of a hundred", append(ms(1, 50), none(50)...), 0, 49, 50},
		{"fifty-one of a hundred", append(ms(1, 51), none(49)...), 1, 50, 51},
	} {
		// Given admitted requests that waited so long,
		w := NewWaits(time.Second)
		for _, wait := range c.waits {
			w.Add(int64(wait))
		}
		// then so many percent waited no longer than this, to three digits.
		for percent, want := range map[int64]float64{50: c.p50, 99: c.p99, 100: c.max} {
			if got := w.Quantile(percent); got < want || got > want*1.001 {
				t.Errorf("%s: %d %% wait %v ms at most, want %v", c.what, percent, got, want)
			}
		}
	}
}
