package protocol

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// What is reported of an earlier time: docs/protocol.md, section 5.8 and step 6.

// left has a process report one entry, in a call by itself, and returns what the first limit then has.
func (s *scene) left(l lease.Late) int64 {
	s.t.Helper()
	s.seq++
	g := s.executes(lease.Request{Holder: "reporter", Seq: s.seq, Config: s.config, Weight: 1, Late: []lease.Late{l},
		Epoch: s.bucket.epoch, Counter: s.bucket.counter})
	return g.Levels[0]
}

func TestADebtIsOwedToTheTimeOfItsUse(t *testing.T) {
	for name, limit := range map[string]lease.Limit{
		"sliding": lease.Sliding(100, time.Minute), "calendar": lease.Calendar(100, time.Minute, 0),
		"bucket": lease.PerSecond(1).WithBurst(100),
	} {
		for _, kind := range []lease.LateKind{lease.LateDebt, lease.LateCharge} {
			// given a bucket of which nothing has been used, a second into a minute
			s := newScene(t, limit, time.Second)
			s.now = 3_601_000_000
			s.calls(s.holder("a"), ask{})
			// when 30 are reported that were used 61 s ago
			n := s.left(lease.Late{Kind: kind, Tokens: 30, Age: 61 * time.Second})
			// then a window does not count them any more, and a token bucket is as full as ever
			want := int64(100)
			if name == "bucket" {
				want = 70
			}
			testkit.Check(t, n == want, "%s: %d are left, want %d", name, n, want)
			// and what was used 2 s ago counts until that is a minute ago, or in that minute
			s.now += 2_000_000
			used := s.now
			s.now += 2_000_000
			n = s.left(lease.Late{Kind: kind, Tokens: 10, Age: 2 * time.Second})
			testkit.Check(t, n == want-10 || name == "bucket" && n == want-10+4, "%s: %d are left", name, n)
			s.now = used + 61_100_000
			n = s.calls(s.holder("b"), ask{}).Levels[0]
			testkit.Check(t, n == 100, "%s: %d are left a minute later", name, n)
		}
	}
}

func TestARefundIsWorthWhatItsWindowStillCounts(t *testing.T) {
	for name, limit := range map[string]lease.Limit{
		"sliding": lease.Sliding(100, time.Minute), "calendar": lease.Calendar(100, time.Minute, 0),
	} {
		for _, kind := range []lease.LateKind{lease.LateUnused, lease.LateRefund} {
			// given 90 that were drawn 80 s ago, and 100 since
			s := newScene(t, limit, time.Second)
			s.now = 3_601_000_000
			s.left(lease.Late{Kind: lease.LateDebt, Tokens: 1, Age: time.Hour}) // so that the bucket knows the reporter
			a := s.holder("a")
			s.now += 1_000_000
			s.draws(a, 90)
			drawn := s.bucket.now
			s.now += 79_500_000
			s.left(lease.Late{Kind: lease.LateDebt, Tokens: 1, Age: time.Hour})
			s.now += 500_000
			s.draws(a, 100)
			// when the first come back, they are worth nothing
			n := s.left(lease.Late{Kind: kind, Tokens: 90, Drawn: drawn})
			testkit.Check(t, n == 0, "%s: %d are left", name, n)
			// and those of the present window are
			n = s.left(lease.Late{Kind: kind, Tokens: 40, Drawn: s.bucket.now})
			testkit.Check(t, n == 40, "%s: %d are left, want 40", name, n)
		}
	}
}

// An outage longer than the windows leaves few entries, of which each window counts about what was used in
// it.
func TestJoinedCellsCountAsUsedWithTheLatest(t *testing.T) {
	limits := []lease.Limit{lease.Sliding(100, time.Minute), lease.Calendar(1000, time.Hour, 0), lease.PerMinute(100)}
	start, halfPast := clock.Instant(1<<60), int64(3600_000_000*1000+1800_000_000)
	// given a token a second for an hour
	var used []clock.Instant
	var debt lates
	var reports []lease.Late
	now := start
	for i := range 3600 {
		now = now.Add(time.Second)
		used = append(used, now)
		debt.add(1, int64(now), usedBy(now, halfPast+exact.Micros(now.Sub(start)), limits))
		testkit.Must(t, len(debt) <= lease.LateMax, "%d entries", len(debt))
		reports = debt.taken(now, lease.LateDebt, nil)
		// then all of the last minute, and at the end of the period, is reported as such, and little more
		for _, window := range []time.Duration{time.Minute, 29 * time.Minute} {
			length, told := int64(window/time.Second), int64(0)
			for _, r := range reports {
				told += flags(r.Age < window) * r.Tokens
			}
			if i == 3599 || window == time.Minute && i >= 60 {
				testkit.Must(t, told >= length && told <= length+length/5,
					"%v: %d are reported after %v: %v", window, told, now.Sub(start), reports)
			}
		}
	}
	// and no token is reported as older than it is
	for i, at := range used {
		told := 0
		for _, r := range reports {
			if now.Sub(at) >= r.Age {
				told += int(r.Tokens)
			}
		}
		testkit.Must(t, told >= len(used)-i, "%d of the last %d tokens: %v", told, len(used)-i, reports)
	}
	// Token buckets count all alike, and are told once.
	var plain lates
	for _, at := range used {
		plain.add(1, int64(at), usedBy(at, halfPast, limits[2:]))
	}
	testkit.Check(t, len(plain) == 1 && plain.sum() == 3600, "%v", plain)
}

// The lists stay short and in order, and lose no token, whatever comes when.
func TestListsOfWhatIsLate(t *testing.T) {
	for seed := range testkit.Seeds(t, 300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		limits := []lease.Limit{lease.Sliding(100, time.Duration(1+rnd.IntN(100))*time.Second)}
		h, list, total := holder{heard: Heard{limits: limits}}, lates{}, int64(0)
		for range 50 {
			n, at := rnd.Int64N(9), rnd.Int64N(exact.Micros(100*time.Second))
			h.heard.running = max(h.heard.running, at)
			list.add(n, at, h.drawnBy())
			total += n
			testkit.Must(t, list.sum() == total && len(list) <= lease.LateMax &&
				slices.IsSortedFunc(list, func(a, b late) int { return int(a.last - b.last) }), "%v", list)
		}
		list.trim(total / 3)
		testkit.Check(t, list.sum() == total/3, "%v of %d", list, total)
	}
}

// oneLate is a list of n tokens of this kind, drawn or used now.
func oneLate(kind lease.LateKind, n int64) []lease.Late { return []lease.Late{{Kind: kind, Tokens: n}} }
