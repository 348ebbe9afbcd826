package redisbucket

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// choices is a source of random numbers whose leading bits are given bytes, two for each number, so
// that a fuzzer which changes a byte changes one decision. When they are used up, numbers follow
// from their hash: the same bytes are the same calls, always.
type choices struct {
	data []byte
	rest *rand.PCG
}

func newChoices(data []byte) *choices {
	h := fnv.New64a()
	h.Write(data)
	return &choices{data: data, rest: rand.NewPCG(h.Sum64(), 0)}
}

// Uint64 implements rand.Source. The low bits are never given: a constant would keep rand.IntN in a loop.
func (c *choices) Uint64() uint64 {
	n := c.rest.Uint64()
	if len(c.data) < 2 {
		return n
	}
	top := uint64(c.data[0])<<56 | uint64(c.data[1])<<48
	c.data = c.data[2:]
	return top | n>>16
}

// FuzzCall: any sequence of calls, changes, losses and failovers that bytes can spell is answered
// alike by the scripts on a real server, by the scripts on miniredis, and by protocol.Bucket, to the
// last bit of reply and state. It is TestScriptsAgreeWithReference with a fuzzer at the dice.
//
//	go test ./redisbucket -run '^$' -fuzz FuzzCall
func FuzzCall(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("one holder calls, and again, and again"))
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 40<<seed)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	s := startServers(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		dice := newChoices(data)
		x := s.trio(t, rand.New(dice), true, len(data)%2 == 0)
		// As many steps as there are bytes for, and a few more; 64 say as much as thousands and keep a
		// fuzzer quick.
		for i := 0; i < 64 && (i <= 8 || len(dice.data) >= 2); i++ {
			x.step()
		}
	})
}

// FuzzCallNumbers goes to the edges that lifelike calls never reach: every number of two requests
// is the fuzzer's, as is the clock. Redis refuses each request that Go refuses, and answers each
// other request as Go does.
func FuzzCallNumbers(f *testing.F) {
	const most = lease.WaitingMax
	add := func(now, later, want, remaining, returned, debt, refund, weight int64) {
		f.Add(now, later, want, remaining, returned, debt, refund, debt/2, 0.3, weight, int64(100),
			int64(0), int64(0), want, now+later/2, int64(0), int64(400_000))
	}
	add(1_700_000_000_000_000, 1000, 10, 0, 0, 0, 0, 1)
	add(0, 0, most, most, most, most, most, 1<<20)
	add(1<<52-2, 1, 1, 1, 1, 1, 1, 1)
	add(1<<52-1, -(1 << 51), 10, 10, 10, 0, 5, 7)
	add(5, 400_001, 3, 2, 1, 50, 5, 3)
	f.Add(int64(1000), int64(1), int64(1<<40), int64(0), int64(0), int64(0), int64(0), int64(most), 0x1p-60,
		int64(1), int64(1<<41), int64(1<<41), int64(3), int64(most), int64(1000), int64(1), int64(7_200_000_000))
	s := startServers(f)
	f.Fuzz(func(t *testing.T, now, later, want, remaining, returned, debt, refund, charge int64,
		headroom float64, weight, tokens, burst, overcommit, unused, drawn, ahead, leaseMax int64) {
		x := s.trio(t, rand.New(newChoices(nil)), true, false)
		// of both: later times are refused by the scripts and never come to the reference
		const clockEnd = 1 << 52
		if now < 0 || now >= clockEnd || later >= clockEnd || now+later < 0 || now+later >= clockEnd {
			t.Skip()
		}
		first := request(1)
		first.Config.Limits = []lease.Limit{lease.PerSecond(tokens).WithBurst(burst)}
		first.Config.Overcommit, first.Config.TTL = overcommit, briefTTL
		first.Want, first.Weight, first.Headroom = want, weight, headroom
		if first.Validate() != nil || first.Config.Validate() != nil {
			t.Skip()
		}
		x.names, x.now = []string{"h"}, now
		g, err := x.call(first)
		testkit.NoErr(t, err)
		// what it reports and asks next, for itself and then as a stranger would
		x.now += later
		second := first
		second.Seq, second.Remaining, second.Returned, second.Denied = 2, remaining, returned, charge
		second.Epoch, second.Counter, second.HeardAt = g.Epoch, g.Counter, g.ServerTime
		aged := time.Duration(drawn%most) * time.Microsecond
		second.Late = slices.DeleteFunc([]lease.Late{
			{Kind: lease.LateUnused, Tokens: unused, Drawn: drawn},
			{Kind: lease.LateRefund, Tokens: refund, Drawn: drawn},
			{Kind: lease.LateDebt, Tokens: debt, Age: aged}, {Kind: lease.LateCharge, Tokens: charge, Age: aged},
		}, func(l lease.Late) bool { return l.Tokens == 0 })
		if ahead > 0 && ahead < most {
			second.Counter += ahead // of what the bucket knows, as after a failover
		}
		second.LeaseMax = time.Duration(leaseMax%(1<<40)) * time.Microsecond
		for _, r := range []lease.Request{second, first, second} {
			if r.Validate() == nil {
				_, _ = x.call(r) // it compares by itself
			}
		}
	})
}
