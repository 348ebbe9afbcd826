package redisbucket

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// noCells lists cells that no window can have, each an age and its tokens.
var noCells = [][]int64{{61, 10}, {59, 10, 60, 0}, {40, 5, 39, 5}, {40, 5, 40, 5}, {40, 1 << 52},
	{39, 1 << 51, 40, 1 << 51}}

// cellText returns the text of cells, of which each is an age and its tokens, and the sum of these.
func cellText(ageAndTokens []int64) (text string, sum int64) {
	var b []byte
	for c := range slices.Chunk(ageAndTokens, 2) {
		b, sum = appendWhole(appendWhole(b, 1, c[0]), 7, c[1]), sum+c[1]
	}
	return string(b), sum
}

// windowDamages returns ways to damage the text of a bucket that windowRequest has called once, at
// the time now, so that no reader can trust it: the form and the head, the first level, the part of a bucket in use,
// two levels, the configuration, one cell, and the calendar's period and its beginning.
func windowDamages(now int64) map[string]func(string) string {
	const configAt, cellAt, periodAt = 219, 339, 347
	sumAt, countAt, calendarAt, noRestAt := place{37, 7}, place{44, 3}, place{199, 7}, place{206, 3}
	cells := func(ageAndTokens ...int64) func(string) string { // instead of the one
		return func(s string) string {
			text, sum := cellText(ageAndTokens)
			s = countAt.set(sumAt.set(s, 0, sum), 0, int64(len(ageAndTokens)/2))
			return s[:cellAt] + text + s[periodAt:]
		}
	}
	damages := map[string]func(string) string{
		"one byte less":   func(s string) string { return s[:len(s)-1] },
		"one byte more":   func(s string) string { return s + "\x00" },
		"no period":       func(s string) string { return s[:periodAt] },
		"nothing charged": func(s string) string { return s[:cellAt] },
		"one period more": func(s string) string { return s + s[periodAt:] },
	}
	for _, c := range append(noCells, []int64{255, 10}) {
		damages[fmt.Sprint("cells ", c)] = cells(c...)
	}
	placed(damages, configAt, map[place][]int64{overcommitAt: {1<<52 - 50}, burstAt: {0}, unitAt: {1},
		stepAt: {999, 1_576_800_000_000_001}, codeAt: {9, 24}}) // of a sliding window
	// Of a calendar and of a bucket.
	placed(damages, configAt+limitSize, map[place][]int64{unitAt: {3_600_000_000}, codeAt: {0, 8}})
	placed(damages, configAt+2*limitSize, map[place][]int64{codeAt: {8}})
	placed(damages, 0, map[place][]int64{sumAt: {11}, countAt: {0, 2, 1 << 23}, calendarAt: {1 << 52}, noRestAt: {1}})
	for at, all := range map[int][]float64{
		periodAt:     {float64(now/3_600_000_000 - 1), 1 << 41},
		periodAt + 8: {float64(now + 1)}, // when it began
	} {
		for _, bad := range append(all, notWhole...) {
			damages[fmt.Sprintf("the number at %d is %v", at, bad)] = double(at, bad)
		}
	}
	return damages
}

// windowDraw returns a draw of a window. Read as a token bucket it would be full.
func windowDraw() lease.Request {
	r := drawOf(2, 1)
	r.Config.Limits = []lease.Limit{lease.Calendar(10, time.Second, 90*time.Millisecond)}
	return r
}

// shortDamages returns ways to damage the short form of a bucket of drawOf.
func shortDamages(t *testing.T) map[string]func(string) string {
	damages := map[string]func(string) string{
		"one byte less":    func(s string) string { return s[:len(s)-1] },
		"one byte more":    func(s string) string { return s + "\x00" },
		"empty":            func(string) string { return "" },
		"no configuration": func(s string) string { return s[:shareAt] },
		"a window":         func(s string) string { return s[:shareAt] + textOf(t, windowDraw().Config) },
		"text as long":     func(s string) string { return "\x00" + strings.Repeat("x", len(s)-1) },
		"zeros as long":    func(s string) string { return strings.Repeat("\x00", len(s)) },
	}
	placed(damages, 0, map[place][]int64{epochAt: {0, 1<<52 - 1}, nowAt: {1 << 52}, ttlAt: {0, 3_600_000_001},
		levelAt: {1 << 50}, restAt: {1}})
	placed(damages, shareAt, map[place][]int64{unitAt: {0}, stepAt: {0}, codeAt: {7}})
	damages["set later"] = func(s string) string {
		return string([]byte{formDated}) + s[1:shareAt] + string(appendWhole(nil, 7, 1<<52-1)) + s[shareAt:]
	}
	return damages
}

// TestDamagedFormsAreAnErrorAndAreNotTouched, by any call: windows, the short form.
func TestDamagedFormsAreAnErrorAndAreNotTouched(t *testing.T) {
	const now = 1_700_000_000_000_000
	onEach(t, func(t *testing.T, s *Store) {
		s.now = func() string { return strconv.FormatInt(now, 10) }
		for size, c := range map[int]struct {
			damages     map[string]func(string) string
			made, calls []lease.Request
		}{
			1 + bucketSize(2+formUsed) + cellSize + periodSize: {windowDamages(now), []lease.Request{windowRequest(1)},
				[]lease.Request{windowRequest(2)}},
			1 + bucketSize(0): {shortDamages(t), []lease.Request{drawOf(1, 1)},
				[]lease.Request{drawOf(2, 1), windowDraw(), request(3)}},
		} {
			for name, damage := range c.damages {
				for _, r := range c.made {
					granted(t, s, "k", r)
				}
				good := contentsOf(s, "k")
				testkit.Must(t, len(good) == size, "%d bytes, want %d", len(good), size)
				checkDamaged(t, s, name, damage(good), c.calls...)
			}
		}
	})
}

// formSeeds returns states with windows, for FuzzStored.
func formSeeds(f *testing.F, s *Store) (states []string) {
	now := int64(1_700_000_000_000_000)
	s.now = func() string { return strconv.FormatInt(now, 10) }
	damaged := func(good string, damages map[string]func(string) string) {
		for _, damage := range damages {
			states = append(states, damage(good))
		}
		states = append(states, good)
	}
	granted(f, s, "k", windowRequest(1))
	first := contentsOf(s, "k")
	damaged(first, windowDamages(now))
	for seq := int64(2); seq < 6; seq++ {
		r := windowRequest(seq)
		r.Late = oneLate(lease.LateCharge, 1)
		now += 30_000
		granted(f, s, "k", r)
		states = append(states, contentsOf(s, "k"))
	}
	return states
}
