package redisbucket

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// windowMutations remove rules of windows (docs/protocol.md section 3.10).
var windowMutations = []mutation{
	{"what a slice held that ends is not charged", lease.Sliding(10, time.Second), []edit{
		{"    each(c, charge, to, held)\n", ""},
	}, func(s *stage) {
		// given A, which spends all 10 just before its lease ends
		s.call("A", lease.Request{Want: 10})
		s.now += 374_000
		s.spend("A", 10)
		// when B asks after it has ended
		s.now += 200_000
		s.drain("B")
	}},
	{"a report is not charged", lease.Sliding(10, time.Second), []edit{
		{"    if windows then windows.charge(c, now, oldHeld - remaining - returned) end\n", ""},
	}, func(s *stage) {
		s.call("A", lease.Request{Want: 10})
		s.now += 100_000
		s.spend("A", 10)
		s.draw("A", 10)
	}},
	{"what is returned is charged as spent, and what was spent is not", lease.Sliding(10, time.Second), []edit{
		{"oldHeld - remaining - returned) end\n", "returned) end\n"},
	}, func(s *stage) {
		// given A, which spends 8 of 10 and gives 2 back
		s.call("A", lease.Request{Want: 10})
		s.now += 100_000
		s.spend("A", 8)
		s.call("A", lease.Request{Returned: 2})
		s.drain("B")
	}},
	{"what requests wait for is not charged", lease.Sliding(10, time.Second), []edit{
		{"  if windows then windows.charge(c, now, min(granted, waiting)) end\n", ""},
	}, func(s *stage) {
		s.draw("A", 10)
		s.draw("A", 10)
	}},
	{"a draw at rest of a window is answered from its level", lease.Sliding(10, time.Second), []edit{
		{"  if windows then windows.charge(c, now, min(granted, waiting)) end\n",
			"  if c.windows and not rest then c.windows.charge(c, now, min(granted, waiting)) end\n"},
	}, func(s *stage) {
		for range 11 {
			s.draws("A", 1)
		}
	}},
	{"what is leased is not taken off", lease.Sliding(10, time.Second), []edit{
		{"return min(l.burst, l.most - ledger - l.sum) end", "return min(l.burst, l.most - l.sum) end"},
	}, func(s *stage) {
		s.call("A", lease.Request{Want: 10})
		s.drain("B")
		s.spend("A", 10)
	}},
	{"a cell is dropped when a part of it is older than the window", lease.Sliding(10, time.Second), []edit{
		{"local first = max(0, floor((now - l.tick) / l.cell))",
			"local first = max(0, floor((now - l.tick) / l.cell) + 1)"},
		{"    l.first = max(0, floor((was - l.tick) / l.cell))", "    l.first = max(0, floor((was - l.tick) / l.cell) + 1)"},
	}, func(s *stage) {
		// given 10 that are admitted at the very end of a cell
		s.now = s.now/16_667*16_667 + 16_666
		s.draw("A", 10)
		// when a window has nearly passed
		s.now += 990_000
		s.drain("B")
	}},
	{"a refund is taken from the newest cell", lease.Sliding(10, time.Second), []edit{
		{"    local j = l.first\n", "    local j = l.first + 60\n"},
		{"      j = j + 1\n", "      j = j - 1\n"},
	}, func(s *stage) {
		// given A, which is admitted 5 and, half a window later, 5 more
		s.draw("A", 5)
		first := s.now
		s.now += 300_000
		s.call("A", lease.Request{})
		s.now += 300_000
		s.draw("A", 5)
		// when the first 5 did not happen
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateRefund, Tokens: 5, Drawn: s.now}}})
		s.cancel(first, 5)
		s.drain("A")
		// then nothing comes back with the first cell, which is empty
		s.now = first + 1_020_000
		s.drain("A")
	}},
	{"unused tokens count although their draw's cell is gone", lease.Sliding(10, 200*time.Millisecond), []edit{
		{"if time > now or not l.past.covers(l, time) then", "if time > now then"},
	}, func(s *stage) {
		// given A, which draws 5 and keeps on calling until they count no more
		drawn := s.call("A", lease.Request{Want: 5, Waiting: 5}).Running
		first := s.now
		s.admit(5)
		s.now += 210_000
		s.drain("B")
		// when the requests of the 5 give up
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateUnused, Tokens: 5, Drawn: drawn}}})
		s.cancel(first, 5)
		s.drain("B")
	}},
	{"unused tokens count although a refund has filled their place", lease.Sliding(10, time.Second), []edit{
		{"then return uncharge(l, n) > 0 end", "then uncharge(l, n) end"},
	}, func(s *stage) {
		// given A, which draws 5, and a refund of 5 others that takes their place
		drawn := s.call("A", lease.Request{Want: 10, Waiting: 10}).Running
		first := s.now
		s.admit(10)
		s.now += 1000
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateRefund, Tokens: 10, Drawn: s.now}}})
		s.cancel(first, 10)
		s.drain("B")
		// when the 5 are said to be unused too
		s.now += 1000
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateUnused, Tokens: 5, Drawn: drawn}}})
		s.drain("B")
	}},
	{"what was used beyond what was reserved is not charged", lease.Sliding(10, time.Second), []edit{
		{"    if kind == 3 then charge(l, time, n) end\n", ""},
	}, func(s *stage) {
		s.draw("A", 5)
		s.admit(5)
		s.call("A", lease.Request{Late: oneLate(lease.LateCharge, 5)})
		s.drain("B")
	}},
	{"what a fallback admitted is not charged", lease.Sliding(10, time.Second), []edit{
		{"    if kind == 2 then charge(l, time, now < frozen and 0 or min(n, spare(l, ledger))) end\n", ""},
	}, func(s *stage) {
		s.draw("A", 5)
		s.admit(5)
		s.call("A", lease.Request{Late: oneLate(lease.LateDebt, 5)})
		s.drain("B")
	}},
	{"a calendar goes back with the clock", lease.Calendar(10, time.Second, 0), []edit{
		{"if period > l.period then", "if period ~= l.period then"},
	}, func(s *stage) {
		// given two periods that are used up
		s.now += 500_000
		s.draw("A", 10)
		s.now += 1_000_000
		s.draw("A", 10)
		// when the clock steps back into the first
		s.stepsBack(1_100_000)
		s.draw("B", 10)
	}},
	{"a calendar is not reset by its own clock", lease.Calendar(10, time.Second, 300*time.Millisecond), []edit{
		{"local since = clock - l.offset\n", "local since = clock\n"},
	}, func(s *stage) {
		s.now += 900_000
		s.draw("A", 10)
		s.now += 200_000
		s.draw("A", 10)
	}},
	{"with StartEmpty a lost window begins with nothing charged", lease.Sliding(10, time.Second), []edit{
		{"    if c.empty then each(c, useUp, now, ledger) end\n", ""},
	}, func(s *stage) {
		s.config.StartEmpty = true
		s.call("A", lease.Request{})
		s.now += 1_100_000
		s.drain("A")
		s.lose()
		s.drain("B")
	}},
	{"while a loss is waited out a window has what it had", lease.Sliding(10, time.Second), []edit{
		{"l.clock, l.level = c.clock, now < frozen and", "l.clock, l.level = c.clock, false and"},
	}, func(s *stage) {
		s.call("B", lease.Request{})
		s.call("A", lease.Request{Want: 10})
		s.lose()
		s.drain("B")
		s.spend("A", 10)
	}},
}

// admission counts the tokens admitted at one moment, by the server's clock.
type admission struct{ at, n int64 }

// proposes has all propose these limits from now on, with a newer version.
func (s *stage) proposes(limits ...lease.Limit) {
	s.config.Limits = limits
	s.config.Version.Deploy++
}

// stepsBack sets the server's clock back by us; the expiries of the keys move with it.
func (s *stage) stepsBack(us int64) { s.now, s.expires = s.now-us, s.expires-us }

// cancel says that n of what was admitted at that time did not happen.
func (s *stage) cancel(at, n int64) { s.admitted = append(s.admitted, admission{at, -n}) }

// windowExcess returns the tokens by which the worst window, or period, exceeds N + E.
func (s *stage) windowExcess() float64 {
	l, worst := s.audit, int64(0)
	per, offset := l.Per.Microseconds(), l.Offset.Microseconds()
	for _, end := range s.admitted {
		n := int64(0)
		for _, a := range s.admitted {
			within := a.at <= end.at && a.at > end.at-per
			if l.Kind == lease.KindCalendar {
				within = (a.at-offset)/per == (end.at-offset)/per
			}
			if within {
				n += a.n
			}
		}
		worst = max(worst, n)
	}
	return float64(worst - l.Capacity() - s.config.Overcommit)
}
