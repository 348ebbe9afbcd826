package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	// The server counts in whole microseconds; 20 round trips are above the 99th percentile.
	calibrationCalls = 2000
	// calibrationPart are the calls between two looks at the server's count: so few that other scripts
	// of a busy server do not run between all of them.
	calibrationPart   = 10
	calibrationWarmup = 200      // calls, in which connections open and caches fill
	calibrationPrefix = "yuzhi:" // the library's, because a user may be allowed no other
	calibrationMost   = 20 * time.Second
)

// Calibration holds the times of a lease call: in the server and on the way.
type Calibration struct {
	Redis     string        // for people, with its version
	Calls     int           // that were timed
	Service   time.Duration // mean time that the script runs, by the server's own count
	RoundTrip Quantiles     // as the caller saw it, with Service
}

// Calibrate makes lease calls under c, one after the other, for a key of its own, which it deletes
// at the end, and asks the server for the time that its script took. Others may use the server
// meanwhile. The user must be allowed INFO.
func Calibrate(ctx context.Context, address string, c lease.Config) (Calibration, error) {
	rdb, err := newClient(address)
	if err != nil {
		return Calibration{}, fmt.Errorf("%w: --calibrate: %w", ErrUsage, err)
	}
	rdb.Close()
	v, err := connect(ctx, address)
	if err != nil {
		return Calibration{}, err
	}
	defer v.stop()
	store, err := redisbucket.New(v.rdb, redisbucket.Config{Prefix: calibrationPrefix})
	if err != nil {
		return Calibration{}, fmt.Errorf("leasesim: %w", err)
	}
	key, holder := NewKey(), "calibration"
	defer func() { // for a user without the right to delete, the keys expire a lease's length later
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), silentFor)
		defer cancel()
		bucket := calibrationPrefix + "{" + key + "}" // as docs/protocol.md names keys
		_ = v.rdb.Del(ctx, bucket, bucket+":"+holder).Err()
	}()
	call := lease.Call{Key: key, Request: lease.Request{Holder: holder, Config: c, Want: 1, Weight: 1}}
	var trips []time.Duration
	// exchange makes n calls, each of which returns the tokens of the one before.
	began := time.Now()
	exchange := func(n int) error {
		for range n {
			if time.Since(began) > calibrationMost {
				return nil
			}
			call.Request.Seq++
			call.Request.Returned = call.Grant.Granted
			sent := time.Now()
			store.Exchange(ctx, []*lease.Call{&call}, func([]*lease.Call) {})
			trips = append(trips, time.Since(sent)-call.Before)
			if call.Err != nil {
				return fmt.Errorf("leasesim: Redis at %s: a lease call: %w", v.name, call.Err)
			}
		}
		return nil
	}
	if err := exchange(calibrationWarmup); err != nil {
		return Calibration{}, err
	}
	trips, began = trips[:0], time.Now()
	before, err := v.served(ctx)
	var own served // of the parts in which no other script was called
	for err == nil && len(trips) < calibrationCalls && time.Since(began) < calibrationMost {
		made := len(trips)
		if err := exchange(calibrationPart); err != nil {
			return Calibration{}, err
		}
		var after served
		if after, err = v.served(ctx); err == nil {
			own.add(int64(len(trips)-made), before, after)
			before = after
		}
	}
	if err != nil {
		return Calibration{}, fmt.Errorf("leasesim: Redis at %s does not say how long its commands take (INFO "+
			"commandstats): %w", v.name, err)
	}
	service := own.since(served{})
	if service <= 0 {
		return Calibration{}, fmt.Errorf("leasesim: Redis at %s does not count how long the script alone takes "+
			"(INFO commandstats), or other scripts are called all the time: say --set redis.service_time", v.name)
	}
	slices.Sort(trips)
	quantile := func(q int) int64 { return int64(trips[(len(trips)-1)*q/100]) }
	return Calibration{
		Redis: v.name, Calls: len(trips), Service: service.Round(100 * time.Nanosecond),
		RoundTrip: Quantiles{P50: quantile(50), P99: quantile(99)},
	}, nil
}

// add counts a part with `made` lease calls, unless other scripts were called in it: the server counts all
// scripts together, and others may take far longer.
func (s *served) add(made int64, before, after served) {
	if after.calls-before.calls == made {
		s.calls, s.time = s.calls+made, s.time+after.time-before.time
	}
}

// NetworkAndService returns network.round_trip and redis.service_time of a scenario.
func (c Calibration) NetworkAndService() (trip, service sim.DurationDist) {
	trip = linkOf(c.RoundTrip, c.Service)
	for _, x := range []*float64{&trip.P, &trip.Q} { // no digits that the next run will not have
		*x = float64(time.Duration(*x).Round(time.Microsecond))
	}
	return trip, sim.Constantly(c.Service)
}

// linkOf returns the distribution of a link on which round trips took as long as seen, with service in
// the server.
func linkOf(seen Quantiles, service time.Duration) sim.DurationDist {
	trip := max(time.Duration(seen.P50)-service, time.Microsecond)
	slow := max(time.Duration(seen.P99)-service, trip)
	return sim.DurationDist{Dist: sim.Dist{Kind: sim.DistLognormal, P: float64(trip), Q: float64(slow)}}
}
