package redisbucket

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// windowRequest returns a call that charges 10 tokens of a key with limits of all kinds.
func windowRequest(seq int64) lease.Request {
	r := request(seq)
	r.Waiting = r.Want
	r.Config.Limits = []lease.Limit{lease.Sliding(100, time.Second),
		lease.Calendar(1000, time.Hour, 300*time.Millisecond), lease.PerSecond(100)}
	return r
}

// cellText returns the text of cells, of which each is an age and its tokens, and the sum of these.
func cellText(ageAndTokens []int64) (text string, sum int64) {
	var b []byte
	for c := range slices.Chunk(ageAndTokens, 2) {
		b, sum = appendWhole(appendWhole(b, 1, c[0]), 7, c[1]), sum+c[1]
	}
	return string(b), sum
}

// windowDamages returns ways to damage the text of a bucket that windowRequest has called once, at
// the time now, so that no reader can trust it: 39 numbers, the configuration, the levels and rests
// of the other limits, one cell, and the number of the period.
func windowDamages(now int64) map[string]func(string) string {
	const calendarAt = 8*stateNumbers + 30 + 3*30 // its sum, and when its period began
	const cellAt = calendarAt + 32
	const periodAt = cellAt + cellSize
	number := func(at int, to float64) func(string) string {
		return func(s string) string { return s[:at] + doubles(to) + s[at+8:] }
	}
	cells := func(ageAndTokens ...int64) func(string) string { // instead of the one
		return func(s string) string {
			text, sum := cellText(ageAndTokens)
			s = setNumber(setNumber(s, levelAt, float64(sum)), levelAt+1, float64(len(ageAndTokens)/2))
			return s[:cellAt] + text + s[periodAt:]
		}
	}
	config := func(limit int, p place, to int64) func(string) string {
		return func(s string) string { return p.set(s, configAt+30*limit, to) }
	}
	damages := map[string]func(string) string{
		"a sum that is not that of the cells": number(8*levelAt, 11),
		"no cells":                            number(8*levelAt+8, 0),
		"more cells":                          number(8*levelAt+8, 2),
		"cells without end":                   number(8*levelAt+8, 1<<40),
		"a cell of later":                     cells(61, 10),
		"a cell of much later":                cells(255, 10),
		"an empty cell":                       cells(59, 10, 60, 0),
		"cells that go back":                  cells(40, 5, 39, 5),
		"a cell twice":                        cells(40, 5, 40, 5),
		"cells beyond 2^52":                   cells(39, 1<<51, 40, 1<<51),
		"a calendar's sum beyond 2^52":        number(calendarAt, 1<<52),
		"a calendar's sum below 0":            number(calendarAt, -1),
		"a period that began later":           number(calendarAt+8, float64(now+1)),
		"a period that is over":               number(periodAt, float64(now/3_600_000_000-1)),
		"a period beyond 2^52":                number(periodAt, 1<<41),
		"one byte less":                       func(s string) string { return s[:len(s)-1] },
		"one byte more":                       func(s string) string { return s + "\x00" },
		"no period":                           func(s string) string { return s[:periodAt] },
		"nothing charged":                     func(s string) string { return s[:cellAt] },
		"one period more":                     func(s string) string { return s + s[periodAt:] },
		"a window shorter than a millisecond": config(0, stepAt, 999),
		"a window longer than 50 years":       config(0, stepAt, 1_576_800_000_000_001),
		"a sliding window with an offset":     config(0, unitAt, 1),
		"a window of no tokens":               config(0, burstAt, 0),
		"an offset of a period":               config(1, unitAt, 3_600_000_000),
		"a calendar that is a bucket":         config(1, codeAt, 0),
		"a calendar that is a sliding window": config(1, codeAt, 8),
		"a bucket that is a sliding window":   config(2, codeAt, 8),
		"a tick of a window":                  config(0, codeAt, 9),
		"a window of no kind":                 config(0, codeAt, 24),
		"more overcommit than can be counted": func(s string) string {
			return overcommitAt.set(s, configAt, 1<<52-50)
		},
	}
	for name, at := range map[string]int{"sum": 8 * levelAt, "number of cells": 8*levelAt + 8,
		"calendar's sum": calendarAt, "beginning": calendarAt + 8, "period": periodAt} {
		for _, bad := range notWhole {
			damages[fmt.Sprintf("the %s is %v", name, bad)] = number(at, bad)
		}
	}
	return damages
}

func TestDamagedWindowsAreAnErrorAndAreNotTouched(t *testing.T) {
	const now = 1_700_000_000_000_000
	onEach(t, func(t *testing.T, s *Store) {
		s.now = func() string { return strconv.FormatInt(now, 10) }
		for name, damage := range windowDamages(now) {
			first := granted(t, s, "k", windowRequest(1))
			good := contentsOf(s, "k")
			testkit.Must(t, first.Waited == 10 && len(good) == longSize(3)+cellSize+periodSize, "%+v, %d bytes",
				first, len(good))
			checkDamaged(t, s, name, damage(good), windowRequest(2))
		}
	})
}

// TestAWindowIsNotInTheShortForm, which could not say what is charged to it: what looks like one is
// damaged, for the fast path too.
func TestAWindowIsNotInTheShortForm(t *testing.T) {
	draw := drawOf(1, 1)
	draw.Config.Limits = []lease.Limit{lease.Sliding(10, time.Second)}
	onEach(t, func(t *testing.T, s *Store) {
		// given a draw of a window at rest
		granted(t, s, "k", draw)
		testkit.Check(t, len(contentsOf(s, "k")) == longSize(1)+cellSize, "%d bytes", len(contentsOf(s, "k")))
		// when the bucket's text becomes one of the short form, with its configuration
		other := draw
		other.Config.Limits = []lease.Limit{lease.PerSecond(10)}
		s.rdb.Del(context.Background(), s.bucketKey("k"))
		granted(t, s, "k", other)
		bad := contentsOf(s, "k")[:restSize(1)-configSize(1)] + textOf(t, draw.Config)
		// then no call takes it
		second := draw
		second.Seq = 2
		checkDamaged(t, s, "a window", bad, second, windowRequest(2))
	})
}

// TestWhatAWindowCosts: the text of a bucket grows by 8 bytes for each cell in which something is
// charged, and for a calendar; it shrinks when they are dropped.
func TestWhatAWindowCosts(t *testing.T) {
	s := newStore(t, redistest.Start(t).Addr)
	now := int64(1_700_000_000_000_000)
	s.now = func() string { return strconv.FormatInt(now, 10) }
	r := drawOf(0, 1)
	r.Config.Limits = []lease.Limit{lease.Sliding(1000, time.Minute), lease.Calendar(1_000_000, time.Hour, 0)}
	sizes := make([]int, 0, 200)
	for range 200 {
		r.Seq++
		g := granted(t, s, "k", r)
		testkit.Must(t, g.Granted == 1, "%+v", g)
		s.rdb.Persist(context.Background(), s.bucketKey("k"))
		sizes = append(sizes, len(contentsOf(s, "k")))
		now += 1_000_000 // a cell
	}
	testkit.Check(t, sizes[0] == longSize(2)+16 && slices.Max(sizes) == longSize(2)+periodSize+61*cellSize,
		"%d bytes at first, at most %d", sizes[0], slices.Max(sizes))
	now += 62_000_000
	r.Seq++
	granted(t, s, "k", r)
	testkit.Check(t, len(contentsOf(s, "k")) == sizes[0], "%d bytes after a window", len(contentsOf(s, "k")))
}

// windowSeeds returns states with windows, for FuzzStored.
func windowSeeds(f *testing.F, s *Store) (states []string) {
	now := int64(1_700_000_000_000_000)
	s.now = func() string { return strconv.FormatInt(now, 10) }
	for seq := int64(1); seq < 6; seq++ {
		r := windowRequest(seq)
		r.Charge = 1
		granted(f, s, "k", r)
		states = append(states, contentsOf(s, "k"))
		now += 30_000
	}
	for _, damage := range windowDamages(now) {
		states = append(states, damage(states[0]))
	}
	return append(states, setNumber(states[0], levelAt+1, math.NaN()))
}
