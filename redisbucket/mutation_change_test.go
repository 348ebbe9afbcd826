package redisbucket

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// quick is a limit that others make room for, and take the place of again.
var quick = lease.PerSecond(1000)

// changeMutations remove rules of limits that change (docs/protocol.md sections 6.10 to 6.12), and of
// calendars whose clock steps back.
var changeMutations = []mutation{
	{"a turn hands out a burst", lease.PerHour(10), []edit{
		{"local usedUp = not newer and not bare or mine.empty", "local usedUp = mine.empty"},
	}, func(s *stage) {
		// given a limit that is used up, and turns to a window and back
		s.drain("A")
		for _, l := range []lease.Limit{lease.Sliding(1000, time.Second), s.audit} {
			s.config.Limits = []lease.Limit{l}
			s.now += 800_001
			s.call("B", lease.Request{})
		}
		s.drain("B")
	}},
	{"a switch drops the limits beneath", lease.Sliding(10, time.Minute), []edit{
		{"    if mine.switch > 0 and not bare and ", "    if false and "},
	}, func(s *stage) {
		s.drain("A")
		s.proposes(lease.Blocked)
		s.call("B", lease.Request{})
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"tokens come back that Unlimited had lent", lease.PerHour(10), []edit{
		{"switch == 1 and waiting >= need and min(want, waiting) or 0", "switch == 1 and want or 0"},
	}, func(s *stage) {
		// given a limit that is used up, and suspended when A leases 10
		s.drain("A")
		s.proposes(lease.Unlimited)
		s.call("A", lease.Request{Want: 10})
		s.proposes(s.audit)
		s.call("A", lease.Request{Returned: 10})
		s.drain("B")
	}},
	{"a new limit is full while a loss is waited out", lease.Sliding(10, time.Minute), []edit{
		{"or mine.empty or now < frozen\n", "or mine.empty\n"},
	}, func(s *stage) {
		// given P, which has heard of the bucket before a later version brings a window, now used up
		s.config.Limits = []lease.Limit{quick}
		s.call("P", lease.Request{})
		s.comesBack("A")
		// when the bucket is lost, P proves it, and the version with the window comes before the wait is over
		s.lose()
		s.config.Limits = []lease.Limit{quick}
		s.call("P", lease.Request{})
		s.proposes(s.audit)
		s.call("B", lease.Request{})
		s.now += 3_000_000
		s.drain("B")
	}},
	{"a window of another N starts anew", lease.Sliding(10, time.Minute), []edit{
		{"      to.sum = from.sum\n      to.past.follow(to, from)\n", ""},
	}, func(s *stage) {
		s.config.Limits = []lease.Limit{lease.Sliding(8, time.Minute)}
		s.draw("A", 8)
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"a token bucket of another per starts full", lease.PerHour(10), []edit{
		{"bare and 0 or 3 do\n", "bare and 0 or 2 do\n"},
	}, func(s *stage) {
		s.drain("A")
		s.leaves()
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"an unchanged limit goes on with the one in its place", lease.PerHour(10), []edit{
		{"(pass == 2 or from.burst == to.burst", "(true or from.burst == to.burst"},
	}, func(s *stage) {
		// given a limit that is used up, behind one of equal length that is not
		s.config.Limits = []lease.Limit{lease.PerHour(20), s.audit}
		s.drain("A")
		// when that leaves
		s.proposes(s.audit)
		s.drain("B")
	}},
}

// leaves has the limits in force make room for quick, of a newer version.
func (s *stage) leaves() {
	s.t.Helper()
	s.proposes(quick)
	s.call("C", lease.Request{})
}

// comesBack has the audited limit come back, of a newer version, when all leases have ended and the
// limit whose place it takes is full. The holder draws whatever it is given.
func (s *stage) comesBack(holder string) {
	s.t.Helper()
	s.now += 1_100_000
	s.call("C", lease.Request{})
	s.proposes(s.audit)
	s.drain(holder)
}
