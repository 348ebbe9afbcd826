package redisbucket

import (
	"context"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// quick is a limit that others make room for, and take the place of again.
var quick = lease.PerSecond(1000)

// pastMutations remove rules of limits that leave and come back (docs/protocol.md section 6.12).
var pastMutations = []mutation{
	{"a limit that leaves is not remembered", lease.PerHour(10), []edit{
		{"      if not inForce[was[i]] then past.leave(c, i, ledger, now, forgot) end\n", ""},
	}, usedUpAndBack},
	{"a limit that comes back does not look at its past", lease.PerHour(10), []edit{
		{"    local p, left = rules.find(id), l.most * l.unit\n", "    local p, left = nil, l.most * l.unit\n"},
	}, usedUpAndBack},
	{"what is leased when a bucket leaves does not count as used", lease.PerHour(10), []edit{
		{"used = l.most * l.unit - l.level,", "used = (l.most - ledger) * l.unit - l.level,"},
	}, leasedAndBack},
	{"what is leased when a window leaves does not count as used", lease.Sliding(10, time.Minute), []edit{
		{"      c.windows.count(p, now, ledger)\n", ""},
	}, leasedAndBack},
	{"what is leased when a bucket comes back is not owed", lease.PerHour(10), []edit{
		{"    local leased, level, deep = newer and min(ledger, l.most) or ledger, ",
			"    local leased, level, deep = 0, "},
	}, func(s *stage) {
		// given a limit with 1 used, and A with a lease of 9 when the limit comes back
		s.draw("A", 1)
		s.leaves()
		s.now += 1_000_000
		s.call("A", lease.Request{Want: 9})
		s.proposes(s.audit)
		s.drain("B")
		s.spend("A", 9)
	}},
	{"what is leased beyond B + E is lent in every turn", lease.PerSecond(1).WithBurst(10), []edit{
		{"newer and min(ledger, l.most) or ledger, ", "min(ledger, l.most), "},
	}, func(s *stage) {
		// given a used up limit that has lost its turn, and A with a lease of 100 when it comes back
		s.config.Version.Deploy = 1
		s.draw("A", 10)
		s.now += 800_001
		s.config.Limits = []lease.Limit{quick}
		s.call("B", lease.Request{})
		s.now += 800_000
		s.config.Version.Deploy = 0 // so that the limits in force are not proposed
		s.call("A", lease.Request{Want: 100})
		s.now++
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{s.audit}, 1
		s.call("B", lease.Request{})
		// when 90 of them are paid
		for range 90 {
			s.now += 1_000_000
			s.admit(1)
		}
		s.drain("B")
	}},
	{"of two limits that are the same the later one counts", lease.PerHour(10), []edit{
		{"        p.used, p.over = max(p.used, other.used), max(p.over, other.over)\n", ""},
	}, func(s *stage) {
		// given a limit of which 9 are used, and then the same once more
		s.draw("A", 9)
		s.config.Limits = append(s.config.Limits, s.audit)
		s.config.Version.Deploy++
		s.draw("A", 1)
		s.leaves()
		s.comesBack("B")
	}},
	{"a window of another N has another past", lease.Sliding(10, time.Minute), []edit{
		{"(code > 15 and 'c' or 's') .. sub(text, at + 7, at + 20)",
			"(code > 15 and 'c' or 's') .. sub(text, at, at + 20)"},
	}, func(s *stage) {
		s.config.Limits = []lease.Limit{lease.Sliding(8, time.Minute)}
		s.draw("A", 8)
		s.leaves()
		s.comesBack("B")
	}},
	{"a window that comes back counts its past only", lease.Sliding(10, time.Minute), []edit{
		{"      local most = max(mine, others)\n", "      local most = others\n"},
	}, func(s *stage) {
		// given a window of which 5 were used, and a calendar in its place that has counted 5 more
		s.draw("A", 5)
		s.proposes(lease.Calendar(10, 24*time.Hour, 0))
		s.draw("A", 5)
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"a window that comes back counts what it takes over only", lease.Sliding(10, time.Minute), []edit{
		{"      local most = max(mine, others)\n", "      local most = mine\n"},
	}, usedUpAndBack},
	{"of a window that was not gone nothing counts", lease.Sliding(10, time.Minute), []edit{
		{"        atLeast(to, c[i])\n", ""},
	}, func(s *stage) {
		s.config.Limits = []lease.Limit{lease.Sliding(8, time.Minute)}
		s.draw("A", 8)
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"a window that was forgotten is not used up", lease.Sliding(10, time.Minute), []edit{
		{"    if not known and forgot > 0 and covers(to, forgot) then", "    if false then"},
	}, func(s *stage) {
		// given P, which has heard of the bucket before a later version brings a window, now used up
		s.config.Limits = []lease.Limit{quick}
		s.call("P", lease.Request{})
		s.comesBack("A")
		// when the bucket is lost, and P proves it
		s.lose()
		s.config.Limits = []lease.Limit{quick}
		s.call("P", lease.Request{})
		s.now += 3_000_000
		s.comesBack("B")
	}},
	{"a loss leaves what is remembered", lease.PerHour(10), []edit{
		{"        if pasts and not pasts.forget(now, forgot) then pasts = nil end\n", ""},
	}, func(s *stage) {
		// given a limit that has left with 1 used, and a replica that has heard no more
		s.draw("A", 1)
		s.leaves()
		s.call("P", lease.Request{})
		replica := s.stored()
		// when the limit comes back, is used up and leaves, and the replica is promoted
		s.comesBack("A")
		s.leaves()
		s.call("P", lease.Request{})
		s.store.rdb.Set(context.Background(), s.store.bucketKey("k"), replica, 0)
		s.call("P", lease.Request{})
		s.now += 3_000_000
		s.comesBack("B")
	}},
	{"a limit that had to make room comes back full", lease.PerHour(10), []edit{
		{"      forgot = max(forgot, now)\n", ""},
	}, func(s *stage) {
		// given a limit that is used up, and eight that have left after it
		s.drain("A")
		for k := range int64(8) {
			s.proposes(lease.PerHour(11 + k))
			s.call("A", lease.Request{})
		}
		s.leaves()
		s.comesBack("B")
	}},
	{"the first limit that left does not make room", lease.PerHour(10), []edit{
		{"      table.remove(list, oldest)\n", "      table.remove(list)\n"},
		{"      forgot = max(forgot, now)\n", ""},
	}, func(s *stage) {
		for k := range int64(9) {
			s.proposes(lease.PerHour(11 + k))
			s.call("A", lease.Request{})
		}
		s.proposes(s.audit)
		s.drain("A")
		s.leaves()
		s.comesBack("B")
	}},
	{"a calendar gives while the clock is before its period", lease.Calendar(10, 10*time.Second, 0), []edit{
		{"    return left > 10000000 and 0 or max(0, left)\n", "    return 0\n"},
	}, func(s *stage) {
		// given a period that is used up, and the next, which has begun
		s.draw("A", 10)
		s.now += 10_500_000
		s.call("A", lease.Request{})
		// when the clock steps back into the first
		s.stepsBack(1_100_000)
		s.drain("B")
	}},
	{"a fallback's debt is charged to a period that has not begun",
		lease.Calendar(10, 10*time.Second, 0), []edit{
			{"      if now < frozen or ahead(l, c.shown) > 0 then left = 0 end\n",
				"      if now < frozen then left = 0 end\n"},
			{"l.level = (now < frozen or l.ahead > 0) and", "l.level = now < frozen and"},
		}, func(s *stage) {
			s.draw("A", 10)
			s.now += 10_500_000
			s.call("A", lease.Request{})
			s.stepsBack(1_100_000)
			s.call("B", lease.Request{Debt: 1})
			s.drain("B")
		}},
	{"a bucket is forgotten while its calendar may come again", lease.Calendar(10, time.Second, 0), []edit{
		{"+ l.offset + 10000000 - c.shown)\n", "+ l.offset - c.shown)\n"},
	}, func(s *stage) {
		s.draw("A", 10)
		s.now += 2_500_000
		s.expire()
		s.stepsBack(2_400_000)
		s.drain("B")
	}},
	{"a bucket is forgotten while a calendar that has left may come again",
		lease.Calendar(10, 10*time.Second, 0), []edit{
			{"  local longest = pasts and pasts.longest() or 0\n", "  local longest = 0\n"},
		}, func(s *stage) {
			// given a period that is used up as it begins, and a calendar that leaves
			s.draw("A", 10)
			s.leaves()
			// when the clock steps back by 100 s, and no call comes until that period comes again
			s.stepsBack(100_000_000)
			s.call("A", lease.Request{})
			s.now += 50_000_000
			s.expire()
			s.now += 50_000_000
			s.proposes(s.audit)
			s.drain("B")
		}},
	{"a calendar that has left is forgotten when its period ends", lease.Calendar(10, 10*time.Second, 0), []edit{
		{"return (p.period + 1) * p.tick + p.offset + 10000000 end",
			"return (p.period + 1) * p.tick + p.offset end"},
	}, func(s *stage) {
		// given a period that is used up, and a calendar that leaves
		s.draw("A", 10)
		s.leaves()
		// when the clock goes on into the next one and steps back
		s.now += 10_500_000
		s.call("A", lease.Request{})
		s.stepsBack(4_000_000)
		s.proposes(s.audit)
		s.drain("B")
	}},
	{"with StartEmpty a loss is waited out as if no clock had been ahead",
		lease.Calendar(10, 10*time.Second, 0), []edit{
			{"      local ahead = heardAt - shown\n", "      local ahead = 0\n"},
		}, func(s *stage) {
			// given a period that is used up as it begins
			s.config.StartEmpty = true
			s.call("A", lease.Request{})
			s.now += 10_100_000
			s.draw("A", 10)
			// when the bucket is lost, the clock steps back, and A proves it
			s.lose()
			s.stepsBack(3_000_000)
			s.call("A", lease.Request{})
			// then that period is used up when it comes again
			s.now += 3_100_000
			s.drain("B")
		}},
	{"a limit is forgotten as if no clock had been ahead", lease.Calendar(10, 10*time.Second, 0), []edit{
		{"        forgot = max(lost, now + ahead)\n", "        forgot = max(forgot, lost)\n"},
	}, func(s *stage) {
		// given P, which has heard of the bucket, and a later version's period, used up as it begins
		s.config.Limits = []lease.Limit{quick}
		s.now += 10_050_000
		s.call("P", lease.Request{})
		s.proposes(s.audit)
		s.draw("A", 10)
		// when the bucket is lost, the clock steps back, and P proves it
		s.lose()
		s.stepsBack(3_000_000)
		s.config.Limits = []lease.Limit{quick}
		s.call("P", lease.Request{})
		// then the period is used up when it comes again
		s.now += 2_000_000
		s.comesBack("B")
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

// stored returns the text of the bucket, with its mark.
func (s *stage) stored() string {
	return s.store.rdb.Get(context.Background(), s.store.bucketKey("k")).Val()
}

// usedUpAndBack has the audited limit leave used up, and come back.
func usedUpAndBack(s *stage) {
	s.drain("A")
	s.leaves()
	s.comesBack("B")
}

// leasedAndBack has the audited limit leave while all of it is leased, and come back.
func leasedAndBack(s *stage) {
	s.call("A", lease.Request{Want: 10})
	s.leaves()
	s.spend("A", 10)
	s.comesBack("B")
}

// TestAResetForgetsWhatWasUsed of limits that have left, as it does of those in force.
func TestAResetForgetsWhatWasUsed(t *testing.T) {
	addr := redistest.Start(t).Addr
	for _, op := range []lease.Op{lease.OpReset, lease.OpReplace} {
		s := newStage(t, addr, newScript("lease"), lease.PerHour(10))
		s.store.prefix += op.String()
		s.drain("A")
		s.leaves()
		long := len(s.stored())
		_, err := s.store.Configure(context.Background(), "k", op, s.config)
		testkit.NoErr(t, err)
		testkit.Check(t, long-len(s.stored()) >= pastSize, "%v: %d bytes are left of %d", op, len(s.stored()), long)
		s.config.Version.Revision = 2
		s.proposes(s.audit)
		g := s.call("B", lease.Request{Want: 10, Waiting: 10})
		testkit.Check(t, g.Granted == 10, "%v: %+v", op, g)
	}
}
