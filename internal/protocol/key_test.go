package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// asked is how a request for n tokens of k that waits for one call is answered.
func (s *scene) asked(k *Key, n int64, on *Terms, b *Breaker) Way {
	return k.Asked(s.instant(), Ask{N: n, Patience: OneCall}, on, b)
}

// away is the breaker of a node that is away, on which this process alone weighs 1.
func (s *scene) away() *Breaker {
	b := newBreaker()
	b.Heard(s.instant(), 1)
	b.Failed(s.instant(), s.instant())
	return b
}

// begins has k begin a draw of n tokens for a request, at a node that is well.
func (s *scene) begins(k *Key, seq, n int64, on *Terms) *Draw {
	s.t.Helper()
	testkit.Must(s.t, s.asked(k, n, on, newBreaker()) == ByDraw, "the key does not draw")
	return s.drawing(k, seq, n, on)
}

// A key goes from rest to a draw and back, and says so.
func TestAKeyDrawsAndRestsAgain(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on := terms(lease.Policy{}, lease.PerSecond(10))
	var k Key
	// given a key of which nothing is known
	testkit.Check(t, k.AtRest() && k.Proposed(s.instant()) == nil && k.InUse(s.instant()) == nil, "%+v", k)
	// when a request draws
	d := s.begins(&k, 1, 2, on)
	// then no other may, and its proposal counts as in use
	testkit.Check(t, k.AtRest() && k.UnderWay() == d && k.Proposed(s.instant()) == on.Proposed, "%+v", k)
	testkit.Check(t, s.asked(&k, 1, on, newBreaker()) != ByDraw, "two draws at a time")
	testkit.Check(t, s.asked(&k, 1, on, s.away()) == ByClient, "the local share decides while a draw is under way")
	// and another draw's reply is none
	g := s.executes(*d.Request)
	_, ok := k.Drew(s.instant(), &Draw{For: d.For, Request: d.Request}, newBreaker(), &g)
	testkit.Check(t, !ok && k.UnderWay() == d, "another draw was answered")
	// when the reply admits
	from, ok := k.Drew(s.instant(), d, newBreaker(), &g)
	// then the key rests, and counts as admitting for a T
	testkit.Must(t, ok && from.Epoch == g.Epoch, "%t, %+v", ok, from)
	testkit.Check(t, k.UnderWay() == nil && k.Admits(s.instant()), "%+v", k)
	_, ok = k.Drew(s.instant(), d, newBreaker(), &g)
	testkit.Check(t, !ok, "one reply counts twice")
	s.now += (400 * time.Millisecond).Microseconds()
	testkit.Check(t, !k.Admits(s.instant()) && k.Limits(s.instant()) == nil, "a T later it counts as in use")
}

// A Client that takes a draw over answers its request, and the key is active until that rests.
func TestAKeyThatIsActivatedHandsOverItsDraw(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on := terms(lease.Policy{}, lease.PerSecond(10))
	var k Key
	d := s.begins(&k, 1, 2, on)
	drv := newDriver(t, lease.PerSecond(10))
	drv.now = s.instant()
	c := &drv.client(lease.Policy{}, lease.PerSecond(10), nil).Client
	testkit.Check(t, k.Activate(s.instant(), c) == d && !k.AtRest() && !k.Gone(), "%+v", k)
	testkit.Check(t, c.Line.HasWaiters() && c.Holder.IsOpen(), "the draw is lost")
	testkit.Check(t, s.asked(&k, 1, on, newBreaker()) != ByDraw, "an active key draws")
	k.Rest(Memory{}, true)
	testkit.Check(t, k.AtRest() && k.Denied() && k.UnderWay() == nil, "%+v", k)
	k.Leave()
	testkit.Check(t, k.Gone() && !k.AtRest(), "%+v", k)
}

// A proposal may change while a draw is under way. The old one is in force then.
func TestAProposalThatChangesWithADrawUnderWay(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on, other := terms(lease.Policy{}, lease.PerSecond(10)), terms(lease.Policy{}, lease.PerSecond(20))
	var k Key
	d := s.begins(&k, 1, 1, on)
	k.Propose(other.Proposed)
	g := s.executes(*d.Request)
	_, ok := k.Drew(s.instant(), d, newBreaker(), &g)
	testkit.Must(t, ok, "refused")
	testkit.Check(t, k.Own() == other.Proposed && k.InUse(s.instant())[0] == on.Proposed.Limits[0],
		"%v is proposed, %v in force", k.Own(), k.InUse(s.instant()))
	testkit.Check(t, s.asked(&k, 1, on, newBreaker()) != ByDraw, "a handle of the old limits draws")
}

// An unheard key decides by its share in an outage, and a Client tells the bucket what that admitted.
func TestAnUnheardKeyOwesWhatItsShareAdmitted(t *testing.T) {
	s := newScene(t, lease.PerSecond(10), 400*time.Millisecond)
	on := terms(lease.Policy{}, lease.PerSecond(10))
	var k Key
	testkit.Must(t, s.asked(&k, 3, on, s.away()) == ByShare, "no share decides")
	took, _ := k.Fallback(s.instant(), 3, 3, on, 1)
	testkit.Must(t, took == 3 && k.Owes(), "%d", took)
	testkit.Check(t, s.asked(&k, 1, on, newBreaker()) != ByDraw, "a draw would not tell of it")
	way := s.asked(&k, 1, terms(lease.Policy{}, lease.PerSecond(20)), s.away())
	testkit.Check(t, way == ByClient, "one share decides for two limits")
	drv := newDriver(t, lease.PerSecond(10))
	drv.now = s.instant()
	c := &drv.client(lease.Policy{}, lease.PerSecond(10), nil).Client
	k.Activate(s.instant(), c)
	testkit.Check(t, c.Holder.debt.sum() == 3 && !k.Owes(), "%v are owed", c.Holder.debt)
}
