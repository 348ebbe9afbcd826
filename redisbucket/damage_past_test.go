package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// pastRequest returns a call for the key of windowRequest, of a newer version without any of its
// limits.
func pastRequest(seq int64) lease.Request {
	r := request(seq)
	r.Config.Limits, r.Config.Version.Deploy = []lease.Limit{lease.PerSecond(7)}, 1
	return r
}

// Where the limits that have left are in the text of a bucket that windowRequest and pastRequest have
// called once each: a sliding window with one cell, a calendar and a token bucket.
var (
	slidingPast  = longSize(1)
	calendarPast = slidingPast + pastSize + cellSize
	bucketPast   = calendarPast + pastSize
)

// Where the numbers of a limit are that has left.
var (
	pastBurst, pastUnit, pastStep = place{0, 7}, place{7, 7}, place{14, 7}
	pastCode, pastUsed, pastAt    = place{21, 1}, place{30, 7}, place{37, 7}
	pastMore, pastZero            = place{44, 7}, place{51, 5}
)

// change is a place that gets another value.
type change struct {
	place
	value int64
}

func (p place) to(value int64) change { return change{p, value} }

// pastDamages returns ways to damage that text, at the time now, so that no reader can trust it.
func pastDamages(now int64) map[string]func(string) string {
	set := func(start int, changes ...change) func(string) string {
		return func(s string) string {
			for _, c := range changes {
				s = c.place.set(s, start, c.value)
			}
			return s
		}
	}
	cells := func(ageAndTokens ...int64) func(string) string { // instead of the one
		return func(s string) string {
			text, sum := cellText(ageAndTokens)
			s = set(slidingPast, pastUsed.to(sum), pastMore.to(int64(len(ageAndTokens)/2)))(s)
			return s[:slidingPast+pastSize] + text + s[calendarPast:]
		}
	}
	damages := map[string]func(string) string{
		"a sum that is not that of the cells": set(slidingPast, pastUsed.to(11)),
		"no cells":                            set(slidingPast, pastMore.to(0)),
		"more cells":                          set(slidingPast, pastMore.to(2)),
		"62 cells":                            set(slidingPast, pastMore.to(62)),
		"nothing charged":                     cells(),
		"a cell of later":                     cells(61, 10),
		"an empty cell":                       cells(59, 10, 60, 0),
		"cells that go back":                  cells(40, 5, 39, 5),
		"a cell twice":                        cells(40, 5, 40, 5),
		"a cell beyond 2^52":                  cells(40, 1<<52),
		"cells beyond 2^52":                   cells(39, 1<<51, 40, 1<<51),
		"a sliding window with an offset":     set(slidingPast, pastUnit.to(1)),
		"a window shorter than a millisecond": set(slidingPast, pastStep.to(999)),
		"a window longer than 50 years":       set(slidingPast, pastStep.to(1_576_800_000_000_001)),
		"a tick of a window":                  set(slidingPast, pastCode.to(9)),
		"a window of no kind":                 set(slidingPast, pastCode.to(24)),
		"a sliding window that is a calendar": set(slidingPast, pastCode.to(16)),
		"a sliding window that is a bucket":   set(slidingPast, pastCode.to(0)),
		"a period shorter than a millisecond": set(calendarPast, pastStep.to(999), pastUnit.to(0)),
		"an offset of a period":               set(calendarPast, pastUnit.to(3_600_000_000)),
		"a calendar's sum beyond 2^52":        set(calendarPast, pastUsed.to(1<<52)),
		"a period beyond 2^52":                set(calendarPast, pastMore.to(1<<41)),
		"a calendar that is a sliding window": set(calendarPast, pastCode.to(12), pastUnit.to(0)),
		"an overcommit too large to count":    set(bucketPast, pastMore.to(1<<52)),
		"a bucket that is a sliding window":   set(bucketPast, pastCode.to(12)),
		"a bucket that is a calendar":         set(bucketPast, pastCode.to(20)),
		"nothing used":                        set(bucketPast, pastUsed.to(0)),
		"used beyond 2^53":                    set(bucketPast, pastUsed.to(1<<53)),
		"tick 3":                              set(bucketPast, pastCode.to(3)),
		"tick 7":                              set(bucketPast, pastCode.to(7)),
		"unit zero":                           set(bucketPast, pastUnit.to(0)),
		"step zero":                           set(bucketPast, pastStep.to(0)),
		"step beyond 2^52":                    set(bucketPast, pastStep.to(1<<52)),
		"a coarse step beyond 2^52":           set(bucketPast, pastCode.to(6), pastStep.to(1<<33)),
		"units beyond 2^52":                   set(bucketPast, pastUnit.to(1<<46)),
		"longer than a century to fill":       set(bucketPast, pastCode.to(6), pastUnit.to(1<<44), pastStep.to(1)),
		"cut off by a cell":                   func(s string) string { return s[:len(s)-8] },
		"one byte less":                       func(s string) string { return s[:len(s)-1] },
		"one byte more":                       func(s string) string { return s + "\x00" },
		"eight bytes more":                    func(s string) string { return s + strings.Repeat("\x00", 8) },
		"nine": func(s string) string {
			return s + strings.Repeat(s[bucketPast:], 6)
		},
		"zeros": func(s string) string {
			return s[:bucketPast] + strings.Repeat("\x00", pastSize)
		},
	}
	for name, start := range map[string]int{"sliding window": slidingPast, "calendar": calendarPast,
		"bucket": bucketPast} {
		damages["the burst of the "+name+" is 0"] = set(start, pastBurst.to(0))
		damages["the burst of the "+name+" is beyond 2^52"] = set(start, pastBurst.to(1<<52))
		damages["the "+name+" left later"] = set(start, pastAt.to(now+1))
		damages["what is 0 in the "+name+" is 1"] = set(start, pastZero.to(1))
		for i, p := range []place{pastBurst, pastUnit, pastStep, pastCode, pastUsed, pastAt, pastMore, pastZero} {
			damages[fmt.Sprintf("number %d of the %s is as large as can be", i, name)] =
				set(start, p.to(1<<(8*p.size)-1))
		}
	}
	return damages
}

func TestDamagedPastsAreAnErrorAndAreNotTouched(t *testing.T) {
	const now = 1_700_000_000_000_000
	onEach(t, func(t *testing.T, s *Store) {
		s.now = func() string { return strconv.FormatInt(now, 10) }
		for name, damage := range pastDamages(now) {
			good := withPasts(t, s)
			testkit.Must(t, len(good) == bucketPast+pastSize, "%d bytes", len(good))
			checkDamaged(t, s, name, damage(good), pastRequest(3), windowRequest(3))
		}
	})
}

// withPasts returns the text of bucket "k" after calls by which three limits have left.
func withPasts(t testing.TB, s *Store) string {
	t.Helper()
	granted(t, s, "k", windowRequest(1))
	granted(t, s, "k", pastRequest(2))
	return contentsOf(s, "k")
}

// TestALimitThatHasLeftIsForgottenInTime: a bucket is as short as before when what was used of limits
// that have left would have been refilled or dropped, and a calendar cannot come back.
func TestALimitThatHasLeftIsForgottenInTime(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		now := int64(1_700_000_000_000_000)
		s.now = func() string { return strconv.FormatInt(now, 10) }
		granted(t, s, "k", windowRequest(1))
		hour := now / 3_600_000_000 * 3_600_000_000
		for i, want := range []struct {
			at   int64
			size int
		}{
			{now, bucketPast + pastSize},
			{now + 99_999, bucketPast + pastSize},
			{now + 100_000, bucketPast},
			{now + 1_016_666, bucketPast},
			{now + 1_016_667, slidingPast + pastSize},
			{hour + 3_610_299_999, slidingPast + pastSize},
			{hour + 3_610_300_000, slidingPast},
		} {
			now = want.at
			granted(t, s, "k", pastRequest(int64(2+i)))
			s.rdb.Persist(context.Background(), s.bucketKey("k"))
			testkit.Check(t, len(contentsOf(s, "k")) == want.size, "call %d: %d bytes, want %d", i,
				len(contentsOf(s, "k")), want.size)
		}
	})
}

// pastSeeds returns states with limits that have left, for FuzzStored.
func pastSeeds(f *testing.F, s *Store) (states []string) {
	const now = 1_700_000_000_000_000
	s.now = func() string { return strconv.FormatInt(now, 10) }
	good := withPasts(f, s)
	for _, damage := range pastDamages(now) {
		states = append(states, damage(good))
	}
	return append(states, good)
}
