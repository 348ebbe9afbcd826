package protocol

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// scene is one bucket and some holders on one clock, for stories that are told step by step. Every
// message is carried by hand, and every admission is audited.
type scene struct {
	t         *testing.T
	now       int64 // microseconds
	roundTrip int64 // of calls
	bucket    Bucket
	fair      bool // otherwise see shareNothing
	config    lease.Config
	meter     *meter
	seq       int64
}

func newScene(t *testing.T, l lease.Limit, ttl time.Duration) *scene {
	s := &scene{t: t, now: 1_000_100, config: lease.Config{Limits: []lease.Limit{l}, TTL: ttl,
		Target: time.Microsecond}}
	s.meter = newMeter(l, 0, s.now)
	return s
}

// pair is a scene with two holders.
func pair(t *testing.T, l lease.Limit, ttl time.Duration) (s *scene, a, b *holder) {
	s = newScene(t, l, ttl)
	return s, s.holder("a"), s.holder("b")
}

func (s *scene) lasting(ttl time.Duration) lease.Config {
	c := s.config
	c.TTL = ttl
	return c
}

func (s *scene) instant() clock.Instant { return clock.Instant(s.now * 1000) }

func (s *scene) holder(id string) *holder {
	h := new(holder)
	h.init(id, 0)
	return h
}

func (s *scene) opens(h *holder, a ask) lease.Request {
	s.seq++
	a.Weight = 1
	if a.Config.Limits == nil {
		a.Config = s.config
	}
	return *h.openCall(s.instant(), s.seq, a)
}

func (s *scene) executes(r lease.Request) lease.Grant {
	s.t.Helper()
	if !s.fair {
		shareNothing(&s.bucket)
	}
	var g lease.Grant
	testkit.NoErr(s.t, s.bucket.Call(s.now, &r, &g))
	return g
}

// shareNothing makes the fair share of the next call the whole rate, so that no holder is kept from the
// tokens that there are: for tests whose subject is these.
func shareNothing(b *Bucket) {
	b.fair = fair{share: math.Inf(1), updated: 1 << 62}
}

func (s *scene) accepts(h *holder, g lease.Grant) Accepted {
	s.t.Helper()
	got, ok := h.accept(s.instant(), &g, 0, false)
	testkit.Must(s.t, ok, "the reply to seq %d was not accepted", g.Seq)
	testkit.Must(s.t, h.Account().Conserved(), "tokens lost or forged: %+v", h.Account())
	return got
}

// calls is one whole round trip, with the bucket halfway.
func (s *scene) calls(h *holder, a ask) lease.Grant {
	s.t.Helper()
	r := s.opens(h, a)
	s.now += s.roundTrip / 2
	g := s.executes(r)
	s.meter.admit(s.now, g.Waited)
	s.now += s.roundTrip / 2
	s.accepts(h, g)
	return g
}

// givesUp has h accept g for requests that have gone.
func (s *scene) givesUp(h *holder, g lease.Grant) {
	s.t.Helper()
	got := s.accepts(h, g)
	h.sendBack(got.Waited, got.draw)
}

// sends has the bucket handle r, a call of a process that keeps no books.
func (s *scene) sends(r lease.Request) lease.Grant {
	s.t.Helper()
	s.seq++
	r.Seq, r.Config, r.Weight = s.seq, s.config, 1
	return s.executes(r)
}

// loses has the bucket be lost, and first be the first to call then.
func (s *scene) loses(first *holder) lease.Grant {
	s.t.Helper()
	s.bucket = Bucket{}
	return s.calls(first, ask{})
}

// draws has h call for n tokens for requests that wait.
func (s *scene) draws(h *holder, n int64) (waited int64) {
	s.t.Helper()
	return s.calls(h, ask{Want: n, Waiting: n}).Waited
}

// sets has an operator replace the configuration.
func (s *scene) sets(c lease.Config) {
	s.t.Helper()
	_, err := s.bucket.Configure(s.now, lease.OpSet, c)
	testkit.NoErr(s.t, err)
}

// spends has h spend everything that it still may, and audits that.
func (s *scene) spends(h *holder) (n int64) {
	s.t.Helper()
	h.Expire(s.instant())
	for h.Pool.Take().OK() {
		s.meter.admit(s.now, 1)
		n++
	}
	testkit.Check(s.t, h.Account().Conserved(), "tokens lost or forged: %+v", h.Account())
	s.audits()
	return n
}

// audits fails where (1) was broken.
func (s *scene) audits() {
	s.t.Helper()
	testkit.Check(s.t, s.meter.excess() <= 0 && s.meter.peak <= s.meter.capacity*meterUnit,
		"at %d µs (1) is broken: the worst window held %d millionths of a token, %v",
		s.now, s.meter.peak/1000, s.meter)
}
