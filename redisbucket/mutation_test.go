package redisbucket

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket/redistest"
)

// edit replaces one piece of the script of lease.lua; it must occur exactly once.
type edit struct{ old, new string }

// mutations are rules of the protocol that the script is made to forget. Each comes with a schedule under which honest
// processes, who spend only what they hold and only before their deadline, then admit more than B + E + R*w; with
// the rule in place the same schedule stays within.
var mutations = []struct {
	name  string
	edits []edit
	play  func(*stage)
}{
	{"steps 2 and 3 swapped: holdings are forgotten before the refill", []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
	}, func(s *stage) {
		// given A, who holds the whole bucket until the very end of a slice, and spends it at its deadline
		width := int64(57143)
		s.now = (s.now/width+10)*width - 400_000 - 1
		s.call("A", lease.Request{Seq: 1, Want: 10})
		s.now += 375_000
		s.admit(10)
		// when B asks the moment that A's slice has ended
		s.now += 25_002
		s.admit(s.call("B", lease.Request{Seq: 1, Want: 10, Waiting: 10}).Waited)
	}},
	{"steps 2 and 5 swapped: the refill comes after the report", []edit{
		{"refill(c, max(was, frozen), ends, ledger)\n", "\n"},
		{"      was = ends\n", ""},
		{"  refill(c, was > frozen and was or frozen, now, ledger)\n", ""},
		{"  -- Step 6. ", "  if was then refill(c, max(was, frozen), now, ledger) end -- "},
	}, func(s *stage) {
		// given A, who holds the whole bucket and spends it all just before it reports
		s.call("A", lease.Request{Seq: 1, Want: 10})
		s.now += 100_000
		s.admit(10)
		// when the report asks for as much again
		s.admit(s.call("A", lease.Request{Seq: 2, Want: 10, Waiting: 10}).Waited)
	}},
	{"the clip dropped", []edit{
		{"    l.level = min(l.level, capacity(l, ledger))\n", ""},
	}, func(s *stage) {
		// given A, who holds 10 of B + E = 10 + 10, and a level that has filled up beside it
		s.config.Overcommit = 10
		s.call("A", lease.Request{Seq: 1, Want: 10})
		s.now += 200_000
		// when a new version takes the overcommit away, and A renews until all leases of the old one have ended
		s.config.Overcommit, s.config.Version.Deploy = 0, 1
		for seq := int64(2); seq < 8; seq++ {
			s.call("A", lease.Request{Seq: seq, Remaining: 10})
			s.now += 200_000
		}
		// then A spends and B draws, at one moment
		s.admit(10)
		s.admit(s.call("B", lease.Request{Seq: 1, Want: 10, Waiting: 10}).Waited)
	}},
	{"the seq check dropped: a retry is executed again", []edit{
		{"if live and seq == storedSeq then\n", "if false then\n"},
	}, func(s *stage) {
		// given A, whose 10 requests were admitted, and 5 of them then did not happen
		s.admit(s.call("A", lease.Request{Seq: 1, Want: 10, Waiting: 10}).Waited)
		// when the reply to the refund is lost and A retries
		s.call("A", lease.Request{Seq: 2, Refund: 5})
		s.call("A", lease.Request{Seq: 2, Refund: 5})
		s.admit(-5)
		s.admit(s.call("A", lease.Request{Seq: 3, Want: 10, Waiting: 10}).Waited)
	}},
	{"void calls treated as known", []edit{
		{"local known = live and remaining + returned <= oldHeld\n  if known then", "local known = true\n  if live then"},
		{"  if known then\n    held[slot], ledger =", "  if known and not live then\n    ledger = ledger + remaining\n  elseif known then\n    held[slot], ledger ="},
		{"if known then held[slot] = held[slot] - remaining end", "if live then held[slot] = held[slot] - remaining end"},
	}, func(s *stage) {
		// given A, whose give-back hangs in the network until the bucket has forgotten A
		s.call("A", lease.Request{Seq: 1, Want: 10})
		s.now += 1_000_000
		// when it arrives between two draws of B
		s.admit(s.call("B", lease.Request{Seq: 1, Want: 10, Waiting: 10}).Waited)
		s.call("A", lease.Request{Seq: 2, Returned: 10})
		s.admit(s.call("B", lease.Request{Seq: 2, Want: 10, Waiting: 10}).Waited)
	}},
	{"an expiry moved earlier when T shrinks", []edit{
		{"then fit = width end\n", "then end\n"},
	}, func(s *stage) {
		// given A, who holds the whole bucket for 4 s
		s.config.TTL = 4 * time.Second
		s.call("A", lease.Request{Seq: 1, Want: 10})
		// when a new version makes T 400 ms
		s.now += 1000
		s.config.TTL, s.config.Version.Deploy = 400*time.Millisecond, 1
		s.call("B", lease.Request{Seq: 1})
		// then B draws, and A spends, at one moment before A's deadline
		s.now += 1_000_000
		s.admit(s.call("B", lease.Request{Seq: 2, Want: 10, Waiting: 10}).Waited)
		s.admit(10)
	}},
	{"known although more is reported than was ever given", []edit{
		{"local known = live and remaining + returned <= oldHeld\n", "local known = live\n"},
	}, func(s *stage) {
		// given A and its twin of the same name (a forked process): both hold the 10 tokens that A was given, and the
		// twin's copy is not counted as spent (fault 31 lets it cost one holding)
		s.call("A", lease.Request{Seq: 1, Want: 10})
		s.call("A", lease.Request{Seq: 2, Returned: 10})
		s.admit(s.call("B", lease.Request{Seq: 1, Want: 10, Waiting: 10}).Waited)
		// when the twin gives its copy back under a later seq
		s.call("A", lease.Request{Seq: 3, Returned: 10})
		s.admit(s.call("B", lease.Request{Seq: 2, Want: 10, Waiting: 10}).Waited)
	}},
}

// TestEveryRuleOfTheScriptIsNeeded: given the real script on a real server, every schedule stays within bound (1); with one rule
// edited away, the schedule made for that rule exceeds it.
func TestEveryRuleOfTheScriptIsNeeded(t *testing.T) {
	server := redistest.Start(t)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			intact := newStage(t, server.Addr, "intact", newScript(leaseSource))
			m.play(intact)
			if excess := intact.worst - intact.allowed(); excess > 0 {
				t.Fatalf("the unedited script admits %.4f tokens above B + E + R*w", float64(excess)/tokenUnits)
			}

			mutant := newStage(t, server.Addr, "mutant", mutate(t, m.edits))
			m.play(mutant)
			excess := mutant.worst - mutant.allowed()
			if excess <= 0 {
				t.Fatalf("nothing noticed: the worst window holds %.4f tokens", float64(mutant.worst)/tokenUnits)
			}
			t.Logf("caught: %.4f tokens above B + E + R*w", float64(excess)/tokenUnits)
		})
	}
}

// mutate edits the script's text; an edit that does not fit exactly once would test nothing.
func mutate(t *testing.T, edits []edit) *script {
	t.Helper()
	source := newScript(leaseSource).source
	for _, e := range edits {
		if n := strings.Count(source, e.old); n != 1 {
			t.Fatalf("%q occurs %d times in the script, must be once", e.old, n)
		}
		source = strings.Replace(source, e.old, e.new, 1)
	}
	return scriptOf(source)
}

// tokenUnits is one token of the meter; 100 tokens a second are then one unit a microsecond.
const tokenUnits = 10_000

// stage plays one schedule against one bucket of 100 tokens a second, burst 10, at times that it chooses, and audits
// bound (1) over all windows at once: the largest excess of what was admitted over R*w, in every window that ends
// now, is x = max(0, x - R*dt) + admitted.
type stage struct {
	t      *testing.T
	store  *Store
	config lease.Config
	now    int64

	x, at, worst int64
}

func newStage(t *testing.T, addr, prefix string, s *script) *stage {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	store, err := New(rdb, Config{Prefix: t.Name() + prefix})
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, store: store, now: 1_700_000_000_000_000, config: lease.Config{
		Limits: []lease.Limit{lease.PerSecond(100).WithBurst(10)}, TTL: 400 * time.Millisecond, Target: 100 * time.Millisecond,
	}}
	store.leaseScript = s
	store.now = func() string { return strconv.FormatInt(st.now, 10) }
	return st
}

// call makes one lease call; the keys must not end by the server's own clock, which the schedule ignores.
func (s *stage) call(holder string, r lease.Request) lease.Grant {
	s.t.Helper()
	r.Holder, r.Config, r.Weight = holder, s.config, 1
	g, err := exchange(s.store, "k", r)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, bucket := context.Background(), s.store.bucketKey("k")
	s.store.rdb.Persist(ctx, bucket)
	s.store.rdb.Persist(ctx, recordKey(bucket, holder))
	return g
}

// admit counts n tokens as admitted now; a credited refund is admitted negatively.
func (s *stage) admit(n int64) {
	if s.now > s.at {
		s.x, s.at = max(0, s.x-(s.now-s.at)), s.now
	}
	s.x = max(0, s.x+n*tokenUnits)
	s.worst = max(s.worst, s.x)
}

// allowed is B + E.
func (s *stage) allowed() int64 {
	return (s.config.Limits[0].Capacity() + s.config.Overcommit) * tokenUnits
}
