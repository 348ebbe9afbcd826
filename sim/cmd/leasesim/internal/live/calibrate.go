package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	// 20 round trips are above the 99th percentile of those of one connection.
	calibrationCalls = 2000
	// calibrationLines connections call at one time, after one has: with as many the server is never idle.
	calibrationLines = 50
	// calibrationPart are the calls between two looks at the server's count: so few that other scripts
	// of a busy server do not run between all of them.
	calibrationPart   = 100
	calibrationWarmup = 200      // calls, in which connections open and caches fill
	calibrationPrefix = "yuzhi:" // the library's, because a user may be allowed no other
	calibrationMost   = 20 * time.Second
)

// Calibration holds the times of a lease call: in the server and on the way.
type Calibration struct {
	Redis string // for people, with its version
	Calls int    // that were timed, with one connection
	// Service is how long the script runs where the server is busy, by the server's own count; Exchange what
	// a call costs the server beside it, and Wake what it costs more where the server is idle before it.
	Service, Exchange, Wake time.Duration
	RoundTrip               Quantiles // as the caller saw it with one connection, with all of those
}

// Calibrate makes lease calls under c, for keys of its own, which it deletes at the end, and asks the server
// for the time that its script took and for its CPU time: with one connection, and with fifty. Others may use
// the server meanwhile, whose CPU time is then taken for that of an exchange. The user must be allowed INFO.
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
	lines := make([]*line, calibrationLines)
	for i := range lines {
		lines[i] = &line{store: store, call: lease.Call{Key: NewKey()}}
		lines[i].call.Request = lease.Request{Holder: "calibration", Config: c, Want: 1, Weight: 1}
	}
	defer func() { // for a user without the right to delete, the keys expire a lease's length later
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), silentFor)
		defer cancel()
		for _, l := range lines {
			bucket := calibrationPrefix + "{" + l.call.Key + "}" // as docs/protocol.md names keys
			_ = v.rdb.Del(ctx, bucket, bucket+":"+l.call.Request.Holder).Err()
		}
	}()
	alone, err := v.occupy(ctx, lines[:1])
	if err != nil {
		return Calibration{}, err
	}
	trips := slices.Sorted(slices.Values(lines[0].trips)) // before the line is one of many
	busy, err := v.occupy(ctx, lines)
	if err != nil {
		return Calibration{}, err
	}
	quantile := func(q int) int64 { return int64(trips[(len(trips)-1)*q/100]) }
	round := func(d time.Duration) time.Duration { return max(d, 0).Round(100 * time.Nanosecond) }
	service := busy.since(served{})
	return Calibration{
		Redis: v.name, Calls: len(trips), Service: round(service), Exchange: round(busy.each() - service),
		Wake: round(alone.each() - busy.each()), RoundTrip: Quantiles{P50: quantile(50), P99: quantile(99)},
	}, nil
}

// line makes lease calls one after the other. Each returns the tokens of the one before.
type line struct {
	store *redisbucket.Store
	call  lease.Call
	trips []time.Duration
}

func (l *line) exchange(ctx context.Context, n int) error {
	for range n {
		l.call.Request.Seq++
		l.call.Request.Returned = l.call.Grant.Granted
		sent := time.Now()
		l.store.Exchange(ctx, []*lease.Call{&l.call}, func([]*lease.Call) {})
		l.trips = append(l.trips, time.Since(sent)-l.call.Before)
		if l.call.Err != nil {
			return l.call.Err
		}
	}
	return nil
}

// occupy has lines call at one time, and returns what the server did for calibrationCalls calls and more of
// them.
func (v *server) occupy(ctx context.Context, lines []*line) (own served, err error) {
	each := func(n int) error {
		var all errgroup.Group
		for _, l := range lines {
			all.Go(func() error { return l.exchange(ctx, (n+len(lines)-1)/len(lines)) })
		}
		if err := all.Wait(); err != nil {
			return fmt.Errorf("leasesim: Redis at %s: a lease call: %w", v.name, err)
		}
		return nil
	}
	if err := each(calibrationWarmup); err != nil {
		return served{}, err
	}
	for _, l := range lines {
		l.trips = l.trips[:0]
	}
	made := func() (n int64) {
		for _, l := range lines {
			n += int64(len(l.trips))
		}
		return n
	}
	began := time.Now()
	before, err := v.served(ctx)
	for err == nil && made() < calibrationCalls && time.Since(began) < calibrationMost {
		calls := made()
		if err := each(calibrationPart); err != nil {
			return served{}, err
		}
		var after served
		if after, err = v.served(ctx); err == nil {
			own.add(made()-calls, before, after)
			before = after
		}
	}
	switch {
	case err != nil:
		return served{}, fmt.Errorf("leasesim: Redis at %s does not say how long its commands take (INFO "+
			"commandstats and cpu): %w", v.name, err)
	case own.calls == 0 || own.time == 0:
		return served{}, fmt.Errorf("leasesim: Redis at %s does not count how long the script alone takes "+
			"(INFO commandstats), or other scripts run all the time; use --set redis.service_time", v.name)
	}
	return own, nil
}

// add counts a part with `made` lease calls, unless other scripts were called in it: the server counts all
// scripts together, and others may take far longer.
func (s *served) add(made int64, before, after served) {
	if after.calls-before.calls == made {
		s.calls, s.time, s.cpu = s.calls+made, s.time+after.time-before.time, s.cpu+after.cpu-before.cpu
	}
}

// each is the mean CPU time for a call.
func (s *served) each() time.Duration { return s.cpu / time.Duration(s.calls) }

// Apply puts the measured times into s.
func (c Calibration) Apply(s *sim.Scenario) {
	s.Network.RoundTrip = linkOf(c.RoundTrip, c.Service+c.Exchange+c.Wake)
	for _, x := range []*float64{&s.Network.RoundTrip.P, &s.Network.RoundTrip.Q} { // microseconds are enough
		*x = float64(time.Duration(*x).Round(time.Microsecond))
	}
	s.Redis.ServiceTime, s.Redis.ExchangeTime = sim.Constantly(c.Service), sim.Constantly(c.Exchange)
	s.Redis.WakeTime = sim.Constantly(c.Wake)
}
