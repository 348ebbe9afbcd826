package hybrid_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// verb is a method that takes a number of tokens, of which "k" is asked for times as many.
type verb struct {
	name  string
	times int64
	ask   func(n int64) (ok bool, err error)
}

const allowN, upTo, reserves = "AllowN", "TakeUpTo", "Reserve"

// verbsOf returns the verbs of Keys and of joins in which one key comes several times.
func verbsOf(t *world, l *hybrid.Limiter, limit hybrid.Limit) (all []verb) {
	add := func(times int64, k keyLimiter) {
		took := func(r hybrid.Result, err error) (bool, error) { return r.OK, err }
		reserved := func(r *hybrid.Reservation, err error) (bool, error) { return r.OK(), err }
		all = append(all,
			verb{allowN, times, func(n int64) (bool, error) { return k.AllowN(n), nil }},
			verb{"Take", times, func(n int64) (bool, error) { return took(k.Take(t.Context(), n)) }},
			verb{upTo, times, func(n int64) (bool, error) { return took(k.TakeUpTo(t.Context(), n)) }},
			verb{reserves, times, func(n int64) (bool, error) { return reserved(k.Reserve(t.Context(), n)) }},
			verb{"WaitN", times, func(n int64) (bool, error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := k.WaitN(ctx, n)
				return err == nil, err
			}})
		if j, ok := k.(*hybrid.Joined); ok {
			each := func(n int64) []int64 { return slices.Repeat([]int64{n}, int(times)) }
			all = append(all,
				verb{"TakeEach", times, func(n int64) (bool, error) { return took(j.TakeEach(t.Context(), each(n)...)) }},
				verb{reserves, times, func(n int64) (bool, error) {
					return reserved(j.ReserveEach(t.Context(), each(n)...))
				}})
		}
	}
	k := l.Key("k")
	add(1, k)
	add(1, k.Class(math.MaxInt))
	add(1, k.Class(math.MinInt))
	add(1, l.KeyWithLimits("k", limit))
	for _, times := range []int{1, 2, 3, 4, 16, 17, 1000} {
		add(int64(times), l.Join(slices.Repeat([]*hybrid.Key{k}, times)...))
	}
	return all
}

// numbersAround returns the numbers at which a product by times, or a comparison with burst, may go wrong.
func numbersAround(times, burst int64) (all []int64) {
	wraps := int64(math.MaxUint64 / uint64(max(times, 2)))
	for _, n := range []int64{
		0, 1, burst, burst / times, 1 << 38, 1 << 52, 1 << 53, lease.WaitingMax, wraps,
		math.MaxInt64 / 16, math.MaxInt64 / times, math.MaxInt64, math.MinInt64,
	} {
		for d := int64(-1); d <= 1; d++ {
			all = append(all, n+d, -n+d) // which wraps at the ends
		}
	}
	return all
}

// A request for a negative number is refused with ErrInvalidN, and one for more than the burst with
// ErrExceedsBurst: whichever verb it comes by, however often a key is joined, and whatever the product.
func TestNoNumberIsAdmittedThatTheLimitDoesNotHave(t *testing.T) {
	seeds(t, testkit.ShortOrLong(t, 20, 400, "seeds"), func(t *world, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		// Given a key of any kind, cold or warm, whose store may be away,
		burst := []int64{2, 10, 1 << 20, 1 << 37}[rnd.IntN(4)]
		limit := []hybrid.Limit{
			hybrid.Limit{Tokens: burst, Per: 1 << 10 * time.Hour}, hybrid.Sliding(burst, time.Hour),
			hybrid.Calendar(burst, time.Hour, 0),
		}[rnd.IntN(3)]
		cfg := hybrid.Config{Limits: limits(limit), Priorities: []float64{0.5}}
		cfg.Policy.Shadow = rnd.IntN(4) == 0
		cfg.Policy.MinBatch = rnd.Int64N(2) * 20
		cfg.Policy.Fallback = hybrid.Fallback(rnd.IntN(3))
		l := t.start(cfg)
		all := verbsOf(t, l, limit)
		for range 300 {
			if rnd.IntN(20) == 0 {
				var away verdict
				if rnd.IntN(3) == 0 {
					away.err = lease.ErrUnavailable
				}
				t.every(away)
				time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
			}
			// when any number of tokens is asked for,
			v := all[rnd.IntN(len(all))]
			numbers := numbersAround(v.times, burst)
			n := numbers[rnd.IntN(len(numbers))]
			before := l.Stats()
			ok, err := v.ask(n)
			after := l.Stats()
			said := fmt.Sprintf("%v, shadow %v: %s of %d, of a key that comes %d times: %v, %v",
				limit, cfg.Policy.Shadow, v.name, n, v.times, ok, err)
			asked := new(big.Int).Mul(big.NewInt(n), big.NewInt(v.times))
			// then a negative one is invalid and takes nothing,
			switch {
			case n < 0:
				check(t, !ok && after.Admitted == before.Admitted && after.Invalid == before.Invalid+1, "%s", said)
				if v.name != allowN {
					isErr(t, err, hybrid.ErrInvalidN)
				}
			// none is free,
			case n == 0 && v.name != reserves:
				check(t, ok && err == nil && after.Admitted == before.Admitted, "%s", said)
			// and what no bucket has is not admitted.
			case asked.Cmp(big.NewInt(burst)) > 0 && v.name != upTo && !cfg.Policy.Shadow:
				check(t, !ok && after.Admitted == before.Admitted, "%s", said)
				if v.name != allowN {
					isErr(t, err, hybrid.ErrExceedsBurst)
				}
			}
			check(t, after.Conserved() && min(after.Denied, after.Shadowed, after.TableFull) >= 0 &&
				after.Shadowed >= before.Shadowed && after.Denied >= before.Denied, "%s: %+v", said, after)
			must(t, !t.Failed(), "%s", said)
		}
	})
}

// A cost and a refund may be any number: a negative one is invalid and changes nothing, and the largest
// fills no bucket beyond its burst and charges no more than Policy.MaxOvershoot.
func TestNoCostOrRefundMakesTokens(t *testing.T) {
	const burst, estimate = 10, 5
	for _, times := range []int64{1, 2, 3, 17} {
		bubbleOf(t, times, func(t *world) {
			for i, n := range numbersAround(times, burst) {
				// Given a key with a reservation,
				l := t.process(hourly)
				k := l.Key(fmt.Sprint(i))
				j := l.Join(slices.Repeat([]*hybrid.Key{k}, int(times))...)
				r, err := k.Reserve(t.Context(), estimate)
				must(t, err == nil && r.OK(), "%v", err)
				// when it costs n and n are refunded,
				invalid := l.Stats().Invalid
				j.Refund(n)
				k.Refund(n)
				if n < 0 {
					isErr(t, r.Settle(n), hybrid.ErrInvalidN)
					isErr(t, r.SettleEach(n), hybrid.ErrInvalidN)
					equal(t, l.Stats().Invalid-invalid, 2, "invalid refunds")
					equal(t, drain(l, k.Name()), burst-estimate, "left after negative numbers")
				} else if err := r.Settle(n); n > estimate+10*burst {
					isErr(t, err, hybrid.ErrOvershoot)
				} else {
					noErr(t, err)
				}
				// then no more is left than the burst.
				time.Sleep(afterTTL)
				left := drain(l, k.Name())
				check(t, left <= burst, "%d left of a burst of %d after %d", left, burst, n)
				conserved(t, l)
				noErr(t, l.Close())
			}
		})
	}
}

// Whatever numbers a configuration has, New and SetLimits refuse it with ErrInvalidConfig, or it works.
func TestAnyConfigurationIsRefusedOrWorks(t *testing.T) {
	seeds(t, testkit.ShortOrLong(t, 500, 20_000, "seeds"), func(t *world, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		of := func(valid int64) int64 {
			if rnd.IntN(16) > 0 {
				return valid
			}
			numbers := numbersAround(1, 10)
			return numbers[rnd.IntN(len(numbers))]
		}
		long := func(valid time.Duration) time.Duration { return time.Duration(of(int64(valid))) }
		part := func(valid float64) float64 {
			odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.Copysign(0, -1), 1, math.MaxFloat64}
			if rnd.IntN(16) > 0 {
				return valid
			}
			return odd[rnd.IntN(len(odd))]
		}
		limit := func() hybrid.Limit {
			if rnd.IntN(2) > 0 {
				return hybrid.PerSecond(10)
			}
			return hybrid.Limit{
				Tokens: of(10), Per: long(time.Second), Burst: of(0), Kind: hybrid.Kind(rnd.IntN(4)), Offset: long(0),
			}
		}
		cfg := hybrid.Config{
			Limits: limits(limit()), Version: of(0), CallTimeout: long(0), Priorities: []float64{part(0.5)},
			KeysMax: int(of(0)), Logger: slog.New(slog.DiscardHandler),
			Policy: hybrid.Policy{
				Target: long(0), TTL: long(0), MinBatch: of(0), Overcommit: of(0), Weight: of(0),
				CallsPerSecond: of(0), Headroom: part(0), MaxOvershoot: of(0),
			},
		}
		l, err := hybrid.New(&struct{ lease.Store }{t.network}, cfg)
		if err != nil {
			isErr(t, err, hybrid.ErrInvalidConfig)
			return
		}
		defer l.Close()
		l.Allow("k")
		if err := l.SetLimits(t.Context(), "k", limit()); err != nil {
			isErr(t, err, hybrid.ErrInvalidConfig)
		}
		l.KeyWithLimits("k", limit()).Allow()
		r, err := l.Key("k").Reserve(t.Context(), 1)
		if err == nil && r.OK() {
			err = r.Settle(math.MaxInt64)
		}
		check(t, isOneOf(err, nil, hybrid.ErrOvershoot, hybrid.ErrExceedsBurst), "%+v: %v", cfg, err)
		time.Sleep(time.Second)
		conserved(t, l)
		equal(t, l.Stats().Errors, 0, "failed calls")
	})
}
