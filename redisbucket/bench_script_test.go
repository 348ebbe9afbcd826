package redisbucket

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// fleet is ten holders of one bucket that renew in turn, as processes do: each has spent two thirds
// of its grant, knows the epoch, and asks for a hundred tokens. The bucket has enough. Every eleventh
// call needs more than the bucket can have, so it gets less and a time to retry.
type fleet struct {
	s        *Store
	requests []lease.Request
	calls    int
	short    int
}

func newFleet(s *Store) *fleet {
	f := &fleet{s: s, requests: make([]lease.Request, 10)}
	for i := range f.requests {
		r := request(1)
		r.Holder, r.Config.TTL = fmt.Sprintf("0123456789abcdef-%d", i), 2*time.Second
		r.Config.Limits = []lease.Limit{lease.PerSecond(1_000_000)}
		f.requests[i] = r
	}
	return f
}

func (f *fleet) call(b *testing.B) {
	b.Helper()
	r := &f.requests[f.calls%len(f.requests)]
	f.calls++
	r.Want, r.Need = 100, 0
	if f.calls%11 == 0 {
		r.Want, r.Need = 2_000_000, 2_000_000
	}
	g := granted(b, f.s, "k", *r)
	testkit.Must(b, !g.Void || r.Seq == 1, "a holder that renews in time was void")
	if g.Delay > 0 {
		f.short++
	}
	r.Seq++
	r.Remaining, r.Epoch, r.Counter = g.Granted/3, g.Epoch, g.Counter
	r.LeaseMax, r.HeardAt, r.HeardAge, r.HeardExpiry = g.LeaseMax, g.ServerTime, time.Millisecond, g.Expiry
}

// drawn is a call that is a draw of one token of a key at rest, as a user of a long tail makes it:
// each of some keys in turn.
func drawn(b *testing.B, s *Store, keys int) func() {
	heard := make([]lease.Grant, keys)
	next := 0
	return func() {
		b.Helper()
		i := next % len(heard)
		next++
		r := request(1 + int64(next))
		r.Draw, r.Want, r.Waiting, r.Config.Limits = true, 1, 1, []lease.Limit{lease.PerSecond(10_000)}
		r.Config.TTL = briefTTL
		if g := heard[i]; g.Epoch > 0 {
			r.Epoch, r.Counter, r.LeaseMax = g.Epoch, g.Counter, g.LeaseMax
			r.HeardAt, r.HeardAge, r.HeardExpiry = g.ServerTime, time.Millisecond, g.Expiry
		}
		heard[i] = granted(b, s, fmt.Sprint("user:", i), r)
		testkit.Must(b, heard[i].Granted == 1, "%+v", heard[i])
	}
}

// BenchmarkScriptServerTime compares what one lease call and one draw cost the server with what one
// admitted call of redis_rate costs it, as the same server counts all in turns of 500 calls. It takes
// the median of the turns, so that short bursts of other load do not show. A lease call stands for about a
// hundred decisions. A draw stands for one, like a call of redis_rate, which takes 1,000 keys in turn for it
// too.
//
//	go test ./redisbucket -run '^$' -bench ScriptServerTime -benchtime 40000x -count 5
func BenchmarkScriptServerTime(b *testing.B) { serverTime(b, 0) }

// BenchmarkIdleScriptTime does so for calls that wake a server which has slept for a millisecond.
//
//	go test ./redisbucket -run '^$' -bench IdleScriptTime -benchtime 2000x -count 3
func BenchmarkIdleScriptTime(b *testing.B) { serverTime(b, time.Millisecond) }

func serverTime(b *testing.B, pause time.Duration) {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})
	s := storeOver(b, rdb)
	const keys = 1000
	own, draw, peer := newFleet(s), drawn(b, s, keys), redis_rate.NewLimiter(rdb)
	rated := func(keys, rate int) func() {
		limit, next := redis_rate.Limit{Rate: rate, Burst: rate, Period: time.Second}, 0
		return func() {
			r, err := peer.Allow(ctx, fmt.Sprint("user:", next%keys), limit)
			testkit.Must(b, err == nil && r.Allowed == 1, "%+v, %v", r, err)
			next++
		}
	}
	rate, rates := rated(1, 1_000_000), rated(keys, 10_000)
	turn := 500
	if pause > 0 {
		turn = 50
	}
	for range 4 * turn { // both scripts are loaded and the server is warm
		own.call(b)
		draw()
		rate()
		rates()
	}
	own.calls, own.short = 0, 0
	var took [4][]float64
	measure := func(i, n int, call func()) {
		rdb.ConfigResetStat(ctx)
		for range n {
			time.Sleep(pause)
			call()
		}
		var calls, usec float64
		_, err := fmt.Sscanf(info(b, s, "commandstats", "cmdstat_evalsha"), "calls=%f,usec=%f", &calls, &usec)
		testkit.NoErr(b, err)
		took[i] = append(took[i], usec/calls)
	}
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		n := min(left, turn)
		measure(0, n, func() { own.call(b) })
		measure(1, n, rate)
		measure(2, n, draw)
		measure(3, n, rates)
	}
	b.StopTimer()
	for i := range took {
		slices.Sort(took[i])
	}
	median := func(i int) float64 { return took[i][len(took[i])/2] }
	b.ReportMetric(median(0), "usec/call")
	b.ReportMetric(median(1), "redis_rate-usec/call")
	b.ReportMetric(median(0)/median(1), "ratio")
	b.ReportMetric(median(2)/median(3), "draw-ratio")
	b.ReportMetric(float64(own.short)/float64(own.calls), "short/call")
	b.ReportMetric(0, "ns/op") // the round trips are another matter
}

// BenchmarkMemoryUsage reports what Redis keeps for one bucket and for one record of a holder, as MEMORY
// USAGE says (their keys, of 9 and 28 bytes, included; what the server keeps to expire a key is not).
//
//	go test ./redisbucket -run '^$' -bench MemoryUsage -benchtime 1x
func BenchmarkMemoryUsage(b *testing.B) {
	for _, limits := range []int{1, lease.LimitsMax} {
		b.Run(fmt.Sprintf("limits=%d", limits), func(b *testing.B) {
			ctx := context.Background()
			rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})
			s := storeOver(b, rdb)
			f := newFleet(s)
			for i := range f.requests {
				c := &f.requests[i].Config
				c.Limits = slices.Repeat(c.Limits, limits)
			}
			for range 10 * len(f.requests) {
				f.call(b)
			}
			bucket := s.bucketKey("k")
			for name, key := range map[string]string{"bucket-B": bucket,
				"record-B": recordKey(bucket, f.requests[0].Holder)} {
				n, err := rdb.MemoryUsage(ctx, key).Result()
				testkit.NoErr(b, err)
				b.ReportMetric(float64(n), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
