package redisbucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// edit replaces one piece of the script of lease.lua; it must occur exactly once.
type edit struct{ old, new string }

// mutation removes one rule of the protocol from the script by edits. TestEveryRuleIsNeeded in
// internal/protocol removes the rules from protocol.Bucket, and shows what that breaks.
type mutation struct {
	name  string
	round uint64 // of random calls: one that soon shows the difference
	edits []edit
}

var mutations = []mutation{
	{"steps 2 and 3 swapped: holdings are forgotten before the refill", 40, []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
	}},
	{"steps 2 and 5 swapped: the refill comes after the report", 5, []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
		{"  refill(c, was > frozen and was or frozen, now, ledger)\n", ""},
		{"  local was, before, level, rest\n", "  local before, level, rest\n"},
		{"local c, exists, changed, now = nil, true, false, clock",
			"local c, exists, changed, now, was = nil, true, false, clock"},
		{"  -- Step 6: ", "  if was then refill(c, max(was, frozen), now, ledger) end -- "},
	}},
	{"the clip dropped", 64, []edit{
		{"    l.level = min(l.level, capacity(l, ledger))\n", ""},
	}},
	{"the seq check dropped: a retry is executed again", 8, []edit{
		{"if live and seq == storedSeq then\n", "if false then\n"},
	}},
	{"void calls treated as known", 0, []edit{
		{"returned <= oldHeld\n  if known then", "returned <= oldHeld\n  known = true\n  if live then"},
		{"  if known then\n    local change =",
			"  if known and not live then\n    ledger, since = ledger + remaining, counter\n" +
				"  elseif known then\n    local change ="},
		{"if known then ring[slot] = ring[slot] - remaining end",
			"if live then ring[slot] = ring[slot] - remaining end"},
		{"if known and oldHeld > remaining", "if live and oldHeld > remaining"},
	}},
	{"an expiry moved earlier when T shrinks", 95, []edit{
		{"if now + left > (floor(now / fit) + 8) * fit then fit = width end\n", "\n"},
	}},
	{"known although more is reported than was ever given", 14, []edit{
		{"local known = live and seen == epoch and counted >= since and remaining + returned <= oldHeld\n",
			"local known = live\n"},
	}},
	{"unused tokens credited at face value", 22, []edit{
		{"if ticks < floor((units + l.step - 1) / l.step) then fillBy(l, units - ticks * l.step, held) end",
			"fillBy(l, units, held)"},
	}},
	{"unused tokens credited to a limit that is newer than their draw", 215, []edit{
		{"kind == 0 and known and time > setAt and time <= now then", "kind == 0 and known then"},
	}},
	{"unused tokens credited although a refund has filled their place", 19, []edit{
		{"      return fillBy(l, units, held)\n", "      fillBy(l, units, held)\n"},
	}},
	{"the record of a void call counts for a holder that has not heard of it", 14, []edit{
		{"known = live and seen == epoch and counted >= since and ", "known = live and "},
	}},
	{"limits go over to a new configuration by position", 21, []edit{
		{"if not given[k] and not taken[i] and from.kind == to.kind",
			"if i == k and not given[k] and not taken[i] and from.kind == to.kind"},
	}},
	{"a longer T is in force at once", 25, []edit{
		{"    ttl = min(asked, ttl + floor(passed / 8))\n", "    ttl = asked\n"},
	}},
	{"a loss is waited out as if what was heard were still true", 14, []edit{
		{"lasting = min(leaseMax + ceil(max(0, clock - heardAt - ago, heardAge - ago) / 8), max(leaseMax, 10000000))",
			"lasting = leaseMax"},
	}},
	{"a bucket is forgotten as early as its present limits allow", 46, []edit{
		{"return longest > keep and longest or keep, left", "return longest, left"},
	}},
	{"a charge is forgiven below 0", 0, []edit{
		{"and 0 - deep or l.level - n * l.unit",
			"and 0 - deep or max(min(l.level, 0), l.level - n * l.unit)"},
	}},
	{"a charge counts for known calls only", 0, []edit{
		{"elseif kind == 3 then\n", "elseif kind == 3 and known then\n"},
	}},
	{"a debt forgives what is owed", 63, []edit{
		{"min(l.level, max(0, l.level - units))",
			"max(0, l.level - min(n, l.burst) * l.unit)"},
	}},
	{"a loss forgives what is owed", 2, []edit{
		{"c[k].level, c[k].rest = min(c[k].level, 0), 0 end", "c[k].level, c[k].rest = 0, 0 end"},
	}},
	{"a change of limits pays what is owed", 63, []edit{
		{"    local level = from.level\n", "    local level = max(from.level, 0)\n"},
	}},
	{"a bucket that is owed is forgotten before it is paid", 2, []edit{
		{"full, owes = full + math.floor((l.step - 1 - l.level) / l.step) * l.tick, true", "owes = true"},
	}},
	{"the fast path takes nothing", 6, []edit{
		{"counter, level = counter + 1, level - want * unit", "counter = counter + 1"},
	}},
	{"the fast path refills what has not passed", 20, []edit{
		{"          rest = clock - now + rest\n", "          rest = clock - now + rest + 100000\n"},
	}},
	{"a grant goes into the headroom", 7, []edit{
		{"    local kept = headroom > 0 and math.ceil(l.burst * headroom) or 0\n    local sees",
			"    local kept = 0\n    local sees"},
	}},
	{"what a slice held that ends is not charged", 21, []edit{
		{"    each(c, charge, to, held)\n", ""},
	}},
	{"a report is not charged", 3, []edit{
		{"    if windows then windows.charge(c, now, oldHeld - remaining - returned) end\n", ""},
	}},
	{"what is returned is charged as spent, and what was spent is not", 3, []edit{
		{"oldHeld - remaining - returned) end\n", "returned) end\n"},
	}},
	{"what requests wait for is not charged", 15, []edit{
		{"  if windows then windows.charge(c, now, min(granted, waiting)) end\n", ""},
	}},
	{"a draw at rest of a window is answered from its level", 33, []edit{
		{"  if windows then windows.charge(c, now, min(granted, waiting)) end\n",
			"  if c.windows and not rest then c.windows.charge(c, now, min(granted, waiting)) end\n"},
	}},
	{"what is leased is not taken off", 0, []edit{
		{"return min(l.burst, l.most - ledger - l.sum) end", "return min(l.burst, l.most - l.sum) end"},
	}},
	{"a cell is dropped when a part of it is older than the window", 3, []edit{
		{"local first = max(0, floor((now - l.tick) / l.cell))",
			"local first = max(0, floor((now - l.tick) / l.cell) + 1)"},
		{"    l.first = max(0, floor((was - l.tick) / l.cell))", "    l.first = max(0, floor((was - l.tick) / l.cell) + 1)"},
	}},
	{"a refund is taken from the newest cell", 42, []edit{
		{"    local j = l.first\n", "    local j = l.first + 60\n"},
		{"      j = j + 1\n", "      j = j - 1\n"},
	}},
	{"unused tokens count although their draw's cell is gone", 3, []edit{
		{"if time > now or not l.past.covers(l, time) then", "if time > now then"},
	}},
	{"unused tokens count although a refund has filled their place", 117, []edit{
		{"then return uncharge(l, n) > 0 end", "then uncharge(l, n) end"},
	}},
	{"what was used beyond what was reserved is not charged", 0, []edit{
		{"    if kind == 3 then charge(l, time, n) end\n", ""},
	}},
	{"what a fallback admitted is not charged", 66, []edit{
		{"    if kind == 2 then charge(l, time, now < frozen and 0 or min(n, spare(l, ledger))) end\n", ""},
	}},
	{"a calendar goes back with the clock", 120, []edit{
		{"if period > l.period then", "if period ~= l.period then"},
	}},
	{"a calendar is not reset by its own clock", 9, []edit{
		{"local since = clock - l.offset\n", "local since = clock\n"},
	}},
	{"with StartEmpty a lost window begins with nothing charged", 9, []edit{
		{"    if c.empty then each(c, useUp, now, ledger) end\n", ""},
	}},
	{"while a loss is waited out a window has what it had", 87, []edit{
		{"l.clock, l.level = c.clock, now < frozen and", "l.clock, l.level = c.clock, false and"},
	}},
	{"a turn hands out a burst", 118, []edit{
		{"local usedUp = not newer and not bare or mine.empty", "local usedUp = mine.empty"},
	}},
	{"a switch drops the limits beneath", 21, []edit{
		{"    if mine.switch > 0 and not bare and ", "    if false and "},
	}},
	{"tokens come back that Unlimited had lent", 8, []edit{
		{"switch == 1 and waiting >= need and min(want, waiting) or 0", "switch == 1 and want or 0"},
	}},
	{"a new limit is full while a loss is waited out", 102, []edit{
		{"or mine.empty or now < frozen\n", "or mine.empty\n"},
	}},
	{"a window of another N starts anew", 21, []edit{
		{"      to.sum = from.sum\n      to.past.follow(to, from)\n", ""},
	}},
	{"a token bucket of another per starts full", 2, []edit{
		{"bare and 0 or 3 do\n", "bare and 0 or 2 do\n"},
	}},
	{"an unchanged limit goes on with the one in its place", 24, []edit{
		{"(pass == 2 or from.burst == to.burst", "(true or from.burst == to.burst"},
	}},
}

// TestEveryRuleOfTheScriptIsNeeded: given the real script on a real server with one rule edited away, the
// random calls of TestScriptsAgreeWithReference find that it differs from protocol.Bucket.
func TestEveryRuleOfTheScriptIsNeeded(t *testing.T) {
	testkit.RequireMiniredis(t) // by 32 bits the random numbers are others
	rdb := redis.NewClient(patient(redistest.Start(t).Addr))
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(keepKeys{rdb})
	s := &servers{clients: []*redis.Client{rdb}}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			const rounds = 50
			mutant, round, steps := mutate(t, m.edits), m.round, 0
			for ; steps == 0; round++ {
				testkit.Must(t, round < m.round+rounds, "nothing noticed in %d rounds", rounds)
				steps = s.agree(t, round, 400, mutant)
			}
			testkit.Check(t, s.agree(t, round-1, steps, nil) == 0, "the unedited script differs, too")
		})
	}
}

// mutate edits the script's text; an edit that does not fit exactly once would test nothing.
func mutate(t *testing.T, edits []edit) *script {
	t.Helper()
	source := newScript("lease").source
	for _, e := range edits {
		n := strings.Count(source, e.old)
		testkit.Must(t, n == 1, "%q occurs %d times in the script, must be once", e.old, n)
		source = strings.Replace(source, e.old, e.new, 1)
	}
	return scriptOf(source)
}

// noticing is a test that notes a failure instead of failing.
type noticing struct {
	testing.TB
	said string
}

func (n *noticing) Fatalf(format string, args ...any) {
	n.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// agree makes random steps with the script in place of lease.lua, if any, and returns the number of the one
// that shows a difference from the reference; 0 if none does.
func (s *servers) agree(t *testing.T, round uint64, steps int, instead *script) (differs int) {
	n, agreed, done := &noticing{TB: t}, 0, make(chan struct{})
	go func() {
		defer close(done)
		x := s.trio(n, rand.New(rand.NewPCG(7, round)), true, round%3 == 0)
		if instead != nil {
			x.stores[0].leaseScript = instead
		}
		for ; agreed < steps; agreed++ {
			x.step()
		}
	}()
	<-done
	testkit.Check(t, !strings.Contains(n.said, "user_script"), "the edited script fails: %s", n.said)
	if agreed == steps {
		return 0
	}
	return agreed + 1
}
