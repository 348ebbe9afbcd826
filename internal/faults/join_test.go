package faults

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Keys in the slots of different masters are joined like others: a denial by one of them takes
// nothing from the others, to the token.
func TestAJoinAcrossTheSlotsOfACluster(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given two processes, and a key on each of three masters, of which one has fewer tokens, with
	// leases that do not end,
	cfg := patient(hourly, denying)
	cfg.Policy.TTL = time.Hour
	s := startShards(t, false, cfg)
	s.store = storeOn(t, s.client)
	names := []string{s.keyOn(0), s.keyOn(1), s.keyOn(2)}
	s.spend(0, names[1], 60)
	// when many goroutines ask for all three, until they are denied,
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			var keys []*hybrid.Key
			for _, k := range rand.Perm(len(names)) {
				keys = append(keys, s.limiters[i%2].Key(names[k]))
			}
			j := s.limiters[i%2].Join(keys...)
			for s.askAll(names, j.Allow) {
			}
		})
	}
	wg.Wait()
	s.shutdown()
	// then nothing is lost: each bucket lacks the admitted tokens. A returned draw is credited minus
	// the refill since then, so the level may differ by such a part of a token.
	admitted := s.seen(names[0], 0, s.now()).admitted
	testkit.Check(t, admitted > 0 && admitted <= 40+s.refilled(), "%d admitted", admitted)
	for i, spent := range []int64{0, 60, 0} {
		st := s.state(names[i])
		has := float64(st.Levels[0]) + 1 - st.Next[0].Hours()*float64(hourly.Tokens)
		left, flowed := float64(100-spent-admitted), s.now().Hours()*float64(hourly.Tokens)
		testkit.Check(t, math.Abs(has-left) <= flowed, "%s has %.4f, want %.0f, or up to %.4f from that",
			names[i], has, left, flowed)
		s.checkBound(names[i], hourly, 0)
	}
}
