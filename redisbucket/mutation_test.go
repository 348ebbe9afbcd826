package redisbucket

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// edit replaces one piece of the script of lease.lua; it must occur exactly once.
type edit struct{ old, new string }

// mutation removes one rule of the protocol from the script by edits, and has a schedule for a limit under
// which honest processes then admit more than B + E + R*w, or N + E within a window or a period. With
// the rule in place the same schedule stays within. Honest processes spend only tokens that they hold,
// before their deadline. An admission counts at the time of its grant or of the Take that spent it.
type mutation struct {
	name  string
	limit lease.Limit
	edits []edit
	play  func(*stage)
}

var hundred, hourly = lease.PerSecond(100).WithBurst(10), lease.PerHour(100)

var mutations = []mutation{
	{"steps 2 and 3 swapped: holdings are forgotten before the refill", hundred, []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
	}, func(s *stage) {
		// given A, which holds the whole bucket until the very end of a slice, and spends it at its deadline
		width := int64(65536)
		s.now = (s.now/width+10)*width - 400_000 - 1
		s.call("A", lease.Request{Want: 10})
		s.now += 375_000
		s.admit(10)
		// when B asks the moment that A's slice has ended
		s.now += 25_002
		s.draw("B", 10)
	}},
	{"steps 2 and 5 swapped: the refill comes after the report", hundred, []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
		{"  refill(c, was > frozen and was or frozen, now, ledger)\n", ""},
		{"  local was, before, level, rest\n", "  local before, level, rest\n"},
		{"local c, exists, changed, now = nil, true, false, clock",
			"local c, exists, changed, now, was = nil, true, false, clock"},
		{"  -- Step 6. ", "  if was then refill(c, max(was, frozen), now, ledger) end -- "},
	}, func(s *stage) {
		// given A, which holds the whole bucket and spends it all just before it reports
		s.call("A", lease.Request{Want: 10})
		s.now += 100_000
		s.admit(10)
		// when the report asks for as much again
		s.draw("A", 10)
	}},
	{"the clip dropped", hundred, []edit{
		{"    l.level = min(l.level, capacity(l, ledger))\n", ""},
	}, func(s *stage) {
		// given A, which holds 10 of B + E = 10 + 10, and a level that has filled up meanwhile
		s.config.Overcommit = 10
		s.call("A", lease.Request{Want: 10})
		s.now += 200_000
		// when a new version takes the overcommit away, and A renews until all leases of the old one have
		// ended
		s.config.Overcommit, s.config.Version.Deploy = 0, 1
		for range 6 {
			s.call("A", lease.Request{Remaining: 10})
			s.now += 200_000
		}
		// then A spends and B draws, at one moment
		s.admit(10)
		s.draw("B", 10)
	}},
	{"the seq check dropped: a retry is executed again", hundred, []edit{
		{"if live and seq == storedSeq then\n", "if false then\n"},
	}, func(s *stage) {
		// given A, whose 10 requests were admitted, and 5 of them then did not happen
		s.draw("A", 10)
		// when the reply to the refund is lost and A retries
		s.call("A", lease.Request{Late: oneLate(lease.LateRefund, 5)})
		s.deliverAgain("A", 2)
		s.admit(-5)
		s.draw("A", 10)
	}},
	{"void calls treated as known", hundred, []edit{
		{"returned <= oldHeld\n  if known then", "returned <= oldHeld\n  known = true\n  if live then"},
		{"  if known then\n    local change =",
			"  if known and not live then\n    ledger, since = ledger + remaining, counter\n" +
				"  elseif known then\n    local change ="},
		{"if known then ring[slot] = ring[slot] - remaining end",
			"if live then ring[slot] = ring[slot] - remaining end"},
		{"if known and oldHeld > remaining", "if live and oldHeld > remaining"},
	}, func(s *stage) {
		// given A, whose give-back hangs in the network until the bucket has forgotten A
		s.call("A", lease.Request{Want: 10})
		s.now += 1_000_000
		// when it arrives between two draws of B
		s.draw("B", 10)
		s.call("A", lease.Request{Returned: 10})
		s.draw("B", 10)
	}},
	{"an expiry moved earlier when T shrinks", hundred, []edit{
		{"if now + left > (floor(now / fit) + 8) * fit then fit = width end\n", "\n"},
	}, func(s *stage) {
		// given A, which holds the whole bucket for 4 s, in slices whose width is old enough to be halved
		const width = 1 << 20
		s.config.TTL = 4 * time.Second
		s.call("B", lease.Request{})
		s.now = (s.now/width+20)*width + width/3
		s.call("A", lease.Request{Want: 10})
		// when a new version makes T 400 ms
		s.now += 1000
		s.config.TTL, s.config.Version.Deploy = 400*time.Millisecond, 1
		s.call("B", lease.Request{})
		// then B draws, and A spends, at one moment before A's deadline
		s.now += 2_000_000
		s.draw("B", 10)
		s.admit(10)
	}},
	{"known although more is reported than was ever given", hundred, []edit{
		{"local known = live and seen == epoch and counted >= since and remaining + returned <= oldHeld\n",
			"local known = live\n"},
	}, func(s *stage) {
		// given A and its twin of the same name (a forked process): both hold the 10 tokens that A was
		// given, and the twin's copy is not counted as spent (fault 31 lets it cost one holding)
		s.call("A", lease.Request{Want: 10})
		s.call("A", lease.Request{Returned: 10})
		s.draw("B", 10)
		// when the twin gives its copy back under a later seq
		s.call("A", lease.Request{Returned: 10})
		s.draw("B", 10)
	}},
	{"unused tokens credited at face value", hundred, []edit{
		{"if ticks < floor((units + l.step - 1) / l.step) then fillBy(l, units - ticks * l.step, held) end",
			"fillBy(l, units, held)"},
	}, func(s *stage) {
		// given A, which drew the whole bucket for requests that gave up
		s.call("A", lease.Request{})
		s.now += 1000
		drawn := s.call("A", lease.Request{Want: 10, Waiting: 10}).Running
		// when the bucket has refilled, and B has drawn that
		s.now += 100_000
		s.drain("B")
		// then what A brings back is worth nothing to C
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateUnused, Tokens: 10, Drawn: drawn}}})
		s.drain("C")
	}},
	{"unused tokens credited to a limit that is newer than their draw", lease.PerHour(10), []edit{
		{"kind == 0 and known and time > setAt and time <= now then", "kind == 0 and known then"},
	}, func(s *stage) {
		// given A, which drew 10 for requests that gave up, while there was no limit of 10 an hour
		s.config.Limits = []lease.Limit{quick}
		drawn := s.call("A", lease.Request{Want: 10, Waiting: 10}).Running
		// when B brings that limit, and draws all of it
		s.now += 1000
		s.proposes(quick, s.audit)
		s.drain("B")
		// then what A brings back is worth nothing of it
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateUnused, Tokens: 10, Drawn: drawn}}})
		s.drain("C")
	}},
	{"unused tokens credited although a refund has filled their place", hundred, []edit{
		{"      return fillBy(l, units, held)\n", "      fillBy(l, units, held)\n"},
	}, func(s *stage) {
		// given C, whose 10 requests were admitted, and A, which drew the refill since then for
		// requests that gave up
		s.draw("C", 10)
		s.call("A", lease.Request{})
		s.now += 100_000
		drawn := s.call("A", lease.Request{Want: 10, Need: 10, Waiting: 10}).Running
		// when C's did not happen after all, and B takes their place
		s.now++
		s.call("C", lease.Request{Late: oneLate(lease.LateRefund, 10)})
		s.admit(-10)
		s.now++
		s.drain("B")
		// then what A brings back is worth nothing to D
		s.call("A", lease.Request{Late: []lease.Late{{Kind: lease.LateUnused, Tokens: 10, Drawn: drawn}}})
		s.drain("D")
	}},
	{"the record of a void call counts for a holder that has not heard of it", lease.PerHour(10), []edit{
		{"known = live and seen == epoch and counted >= since and ", "known = live and "},
	}, func(s *stage) {
		// given A, whose 10 requests of this hour were admitted and then did not happen, and B, which
		// was admitted instead
		s.draw("A", 10)
		s.call("A", lease.Request{Late: oneLate(lease.LateRefund, 10)})
		s.admit(-10)
		s.drain("B")
		// when the network delivers both calls of A once more, in order, after the bucket has forgotten A
		s.now += 1_000_000
		s.deliverAgain("A", 1)
		s.deliverAgain("A", 2)
		// then there is nothing to draw
		s.drain("C")
	}},
	{"limits go over to a new configuration by position", hourly, []edit{
		{"if not given[k] and not taken[i] and from.kind == to.kind",
			"if i == k and not given[k] and not taken[i] and from.kind == to.kind"},
	}, func(s *stage) {
		// given a limit of 100 an hour that is used up
		s.draw("A", 100)
		for range 2 {
			// when another limit is put in front of it, and taken away again
			s.proposes(quick, s.audit)
			s.call("A", lease.Request{})
			s.now += 300_000
			s.draw("A", 100)
			s.proposes(s.audit)
			s.draw("B", 100)
		}
	}},
	{"a longer T is in force at once", hundred, []edit{
		{"    ttl = min(asked, ttl + floor(passed / 8))\n", "    ttl = asked\n"},
	}, func(s *stage) {
		// given P, which has heard how long leases may last, and A, which then proposes 10 s and
		// takes the whole bucket
		s.call("P", lease.Request{})
		s.now += 1000
		s.config.TTL = 10 * time.Second
		s.call("A", lease.Request{Want: 10})
		// when the bucket is lost, and P says so
		s.now += 1000
		s.lose()
		s.config.TTL = 400 * time.Millisecond
		s.call("P", lease.Request{})
		// then A spends before its deadline, if there is still time, and B draws, at one moment
		s.now += 700_000
		s.spend("A", 10)
		s.draw("B", 10)
	}},
	{"a loss is waited out as if what was heard were still true", hundred, []edit{
		{"lasting = min(leaseMax + ceil(max(0, clock - heardAt - ago, heardAge - ago) / 8), max(leaseMax, 10000000))",
			"lasting = leaseMax"},
	}, func(s *stage) {
		// given P, which has heard how long leases may last, of a bucket that is kept for long, and
		// then hears no more
		s.config.Version.Revision = 1
		s.call("P", lease.Request{})
		// when A's network gets slow, so that T grows to 5 s, and A takes the whole bucket
		s.config.TTL = 5 * time.Second
		s.call("A", lease.Request{})
		s.now += 36_800_000
		s.call("A", lease.Request{Want: 10})
		// and the bucket is lost, and P says so
		s.lose()
		s.config.TTL = 400 * time.Millisecond
		s.call("P", lease.Request{})
		// then A spends before its deadline, and B draws, at one moment
		s.now += 700_000
		s.spend("A", 10)
		s.draw("B", 10)
	}},
	{"a bucket is forgotten as early as its present limits allow", hundred, []edit{
		{"return longest > keep and longest or keep, left", "return longest, left"},
	}, func(s *stage) {
		// given a limit of 100 an hour that is used up; bound (1) of both limits together is that
		// of 1 a second, burst 101
		hour, second := lease.PerHour(100), lease.PerSecond(1)
		s.audit = second.WithBurst(101)
		s.config.Limits = []lease.Limit{hour}
		s.draw("A", 100)
		// when a version replaces it by one that fills in a second, and no call comes until that may
		// have expired
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{second}, 1
		s.draw("B", 1)
		s.now += 3_000_000
		s.expire()
		// then a new process of the earlier version does not start a full hour
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{hour}, 0
		s.draw("C", 100)
	}},
	{"a charge is forgiven below 0", hundred, []edit{
		{"and 0 - deep or l.level - n * l.unit",
			"and 0 - deep or max(min(l.level, 0), l.level - n * l.unit)"},
	}, func(s *stage) {
		// given A, whose 10 requests used 20 more than was reserved
		s.draw("A", 10)
		s.call("A", lease.Request{Late: oneLate(lease.LateCharge, 20)})
		// when these have been refilled, and no more
		s.pays(20)
		s.draw("B", 10)
	}},
	{"a charge counts for known calls only", hundred, []edit{
		{"elseif kind == 3 then\n", "elseif kind == 3 and known then\n"},
	}, func(s *stage) {
		// given C, which the bucket does not know, and which has used 10 more than was reserved
		s.draw("A", 10)
		s.call("C", lease.Request{Late: oneLate(lease.LateCharge, 10)})
		s.pays(10)
		s.draw("B", 10)
	}},
	{"a debt forgives what is owed", hundred, []edit{
		{"min(l.level, max(0, l.level - units))",
			"max(0, l.level - min(n, l.burst) * l.unit)"},
	}, func(s *stage) {
		// given 20 that are owed
		s.draw("A", 10)
		s.call("A", lease.Request{Late: oneLate(lease.LateCharge, 20)})
		// when a fallback reports its debt
		s.call("A", lease.Request{Late: oneLate(lease.LateDebt, 1)})
		s.pays(20)
		s.draw("B", 10)
	}},
	{"a loss forgives what is owed", hundred, []edit{
		{"c[k].level, c[k].rest = min(c[k].level, 0), 0 end", "c[k].level, c[k].rest = 0, 0 end"},
	}, func(s *stage) {
		// given P, which has heard of a bucket that was lost, and B, which has not, and owes 20
		s.call("P", lease.Request{})
		s.now += 1000
		s.lose()
		s.draw("B", 10)
		s.call("B", lease.Request{Late: oneLate(lease.LateCharge, 20)})
		// when P proves the loss, and it is waited out
		s.call("P", lease.Request{})
		s.now += 500_000
		s.call("P", lease.Request{})
		s.pays(20 - 5)
		s.draw("C", 10)
	}},
	{"a change of limits pays what is owed", hundred, []edit{
		{"    local level = from.level\n", "    local level = max(from.level, 0)\n"},
	}, func(s *stage) {
		// given 20 that are owed
		s.draw("A", 10)
		s.call("A", lease.Request{Late: oneLate(lease.LateCharge, 20)})
		// when a version brings a smaller burst, and the next one that of before
		s.proposes(lease.PerSecond(100).WithBurst(9))
		s.call("A", lease.Request{})
		s.proposes(s.audit)
		s.pays(20)
		s.draw("B", 10)
	}},
	{"a bucket that is owed is forgotten before it is paid", hundred, []edit{
		{"full, owes = full + math.floor((l.step - 1 - l.level) / l.step) * l.tick, true", "owes = true"},
	}, func(s *stage) {
		// given 1000 that are owed, of a bucket that fills in a tenth of a second
		s.call("A", lease.Request{Late: oneLate(lease.LateCharge, 1010)})
		// when no call comes for three seconds, in which 300 are paid
		s.pays(300)
		s.expire()
		s.draw("B", 10)
	}},
	{"the fast path takes nothing", hundred, []edit{
		{"counter, level = counter + 1, level - want * unit", "counter = counter + 1"},
	}, func(s *stage) {
		for range 30 {
			s.draws("A", 1)
		}
	}},
	{"the fast path refills what has not passed", hundred, []edit{
		{"          rest = clock - now + rest\n", "          rest = clock - now + rest + 100000\n"},
	}, func(s *stage) {
		for range 30 {
			s.draws("A", 1)
			s.now += 1000
		}
	}},
	{"a grant goes into the headroom", hundred, []edit{
		{"    local kept = headroom > 0 and math.ceil(l.burst * headroom) or 0\n    local sees",
			"    local kept = 0\n    local sees"},
	}, func(s *stage) {
		// given A, which leaves half of the burst of 10 to others, so that its bound has the other half
		s.audit.Burst = 5
		// when it draws all that it may
		for range 20 {
			s.admit(s.call("A", lease.Request{Headroom: 0.5, Want: 10, Waiting: 10}).Waited)
			s.now += 1000
		}
	}},
}

// TestEveryRuleOfTheScriptIsNeeded: given the real script on a real server, every schedule stays
// within its bound; with one rule edited away, the schedule made for that rule exceeds it.
func TestEveryRuleOfTheScriptIsNeeded(t *testing.T) {
	addr := redistest.Start(t).Addr
	for _, m := range slices.Concat(mutations, windowMutations, changeMutations) {
		t.Run(m.name, func(t *testing.T) {
			intact := newStage(t, addr, newScript("lease"), m.limit)
			m.play(intact)
			testkit.Must(t, intact.excess() <= 0, "the unedited script admits %v tokens too many", intact.excess())
			testkit.Must(t, intact.forgotten == 0, "an expiry moved earlier by %v", intact.forgotten)
			mutant := newStage(t, addr, mutate(t, m.edits), m.limit)
			m.play(mutant)
			testkit.Must(t, mutant.excess() > 0, "nothing noticed: the worst window has %v tokens to spare",
				-mutant.excess())
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

// stage plays one schedule against one bucket, at times that it chooses, and audits bound (1) over all
// windows at once: the largest excess of what was admitted over R*w, in every window that ends now, is
// x = max(0, x - R*dt) + admitted. A token is as many units as Per has microseconds, so that the rate is
// Tokens units a microsecond.
type stage struct {
	t      *testing.T
	store  *Store
	config lease.Config // that the next call proposes
	audit  lease.Limit
	now    int64

	holders map[string]*honest
	expires int64 // when the bucket may be forgotten, as the last reply said

	x, at, worst int64
	admitted     []admission
	forgotten    time.Duration // by how much that moved earlier at worst
}

// honest is the knowledge of one holder.
type honest struct {
	heard    lease.Grant
	at       int64 // when it came
	deadline int64
	sent     []lease.Request
}

func newStage(t *testing.T, addr string, script *script, limit lease.Limit) *stage {
	t.Helper()
	rdb := redis.NewClient(patient(addr))
	rdb.AddHook(keepKeys{rdb}) // the schedule ignores the server's own clock
	t.Cleanup(func() { rdb.Close() })
	store, err := New(rdb, Config{Prefix: t.Name() + script.sha})
	testkit.NoErr(t, err)
	s := &stage{t: t, store: store, config: request(1).Config, now: 1_700_000_000_000_000,
		audit: limit, holders: make(map[string]*honest)}
	s.config.Limits, s.config.TTL = []lease.Limit{limit}, briefTTL
	store.leaseScript = script
	store.now = func() string { return strconv.FormatInt(s.now, 10) }
	return s
}

// call makes the next lease call of a holder, which repeats the last reply.
func (s *stage) call(holder string, r lease.Request) lease.Grant {
	s.t.Helper()
	h := s.holders[holder]
	if h == nil {
		h = &honest{}
		s.holders[holder] = h
	}
	r.Holder, r.Seq, r.Config, r.Weight = holder, int64(len(h.sent)+1), s.config, 1
	if h.heard.Epoch > 0 {
		r.Epoch, r.Counter, r.LeaseMax = h.heard.Epoch, h.heard.Counter, h.heard.LeaseMax
		r.HeardAt, r.HeardAge = h.heard.ServerTime, time.Duration(max(0, s.now-h.at))*time.Microsecond
		r.HeardExpiry, r.HeardFrozen = h.heard.Expiry, h.heard.Frozen
	}
	g := s.send(r)
	h.heard, h.at, h.sent = g, s.now, append(h.sent, r)
	h.deadline = s.now + g.Config.TTL.Microseconds()/16*15
	return g
}

// draw makes a call of a holder for n requests that wait, and admits the tokens granted.
func (s *stage) draw(holder string, n int64) {
	s.t.Helper()
	s.admit(s.call(holder, lease.Request{Want: n, Waiting: n}).Waited)
}

// draws makes a draw of n tokens (section 4.1), and admits the tokens granted.
func (s *stage) draws(holder string, n int64) {
	s.t.Helper()
	s.admit(s.call(holder, lease.Request{Draw: true, Want: n, Waiting: n}).Waited)
}

// pays lets n tokens refill, at 100 a second, and counts as many as admitted meanwhile: what was
// used beyond what was reserved counts when it is paid, at the latest.
func (s *stage) pays(n int) {
	for range n {
		s.now += 10_000
		s.admit(1)
	}
}

// drain has a holder draw whatever it is given.
func (s *stage) drain(holder string) {
	s.t.Helper()
	for range 100 {
		s.draw(holder, 10)
	}
}

// deliverAgain sends a copy of the call with this seq, and drops the reply.
func (s *stage) deliverAgain(holder string, seq int) {
	s.t.Helper()
	s.send(s.holders[holder].sent[seq-1])
}

// send makes a call, and notes when the bucket may be forgotten.
func (s *stage) send(r lease.Request) lease.Grant {
	s.t.Helper()
	g := granted(s.t, s.store, "k", r)
	expires := s.now + g.Expiry.Microseconds()
	s.forgotten = max(s.forgotten, time.Duration(s.expires-expires)*time.Microsecond)
	s.expires = expires
	return g
}

// lose drops the bucket; records stay.
func (s *stage) lose() {
	s.store.rdb.Del(context.Background(), s.store.bucketKey("k"))
	s.expires = 0
}

// expire drops the bucket if its time has come.
func (s *stage) expire() {
	if s.now >= s.expires {
		s.lose()
	}
}

// spend admits n tokens that the holder has leased, unless its deadline has passed.
func (s *stage) spend(holder string, n int64) {
	if s.now < s.holders[holder].deadline {
		s.admit(n)
	}
}

// admit counts n tokens as admitted now; a credited refund is admitted negatively.
func (s *stage) admit(n int64) {
	if s.now > s.at {
		s.x, s.at = max(0, s.x-s.audit.Tokens*(s.now-s.at)), s.now
	}
	s.x = max(0, s.x+n*s.audit.Per.Microseconds())
	s.admitted = append(s.admitted, admission{s.now, n})
	s.worst = max(s.worst, s.x)
}

// excess returns the tokens by which the worst window so far exceeds B + E.
func (s *stage) excess() float64 {
	if s.audit.Windowed() {
		return s.windowExcess()
	}
	token := s.audit.Per.Microseconds()
	return float64(s.worst-(s.audit.Capacity()+s.config.Overcommit)*token) / float64(token)
}
