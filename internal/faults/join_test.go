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

// joinOf joins the keys of limiter i with these names, in random order.
func (f *fleet) joinOf(i int, names []string) *hybrid.Joined {
	var keys []*hybrid.Key
	for _, k := range rand.Perm(len(names)) {
		keys = append(keys, f.limiters[i].Key(names[k]))
	}
	return f.limiters[i].Join(keys...)
}

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
			j := s.joinOf(i%2, names)
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

// When the master of one of them is lost, requests that join it are denied, or end with an error;
// the other keys go on, and every key keeps the promise.
func TestAJoinWithASlotThatIsLost(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given two processes that join a key on each of three masters,
	s := startShards(t, false, calmly, "--cluster-require-full-coverage", "no")
	names := []string{s.keyOn(0), s.keyOn(1), s.keyOn(2)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	stopAll := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(stopAll)
	for i := range 8 {
		j := s.joinOf(i%2, names)
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s.askAll(names, func() bool {
					if n%4 == 0 {
						return j.Wait(t.Context()) == nil
					}
					return j.Allow()
				})
			}
		})
	}
	for _, name := range names {
		s.awaitAdmitted(name, 3000)
	}
	// when one of these is killed,
	killed := s.killFirst()
	testkit.Eventually(t, "that joins are denied", func() bool { return s.next(names[0], 200).admitted == 0 })
	// then the other keys are served as before,
	for _, name := range names[1:] {
		testkit.Eventually(t, "a token of "+name, func() bool { return s.allow(0, name) && s.allow(1, name) })
	}
	stopAll()
	// and every request was answered, and no key has admitted more than its limit.
	s.check(killed, names...)
}
