package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestCalibrateMeasuresTheServerForTheScenario(t *testing.T) {
	t.Parallel()
	// Given a server that is 1 ms away, when a command measures it,
	server := redistest.Start(t)
	link := redistest.NewProxy(t, server.Addr)
	link.Set(redistest.Fate{Far: time.Millisecond})
	far := "redis://" + link.Addr + "?protocol=2" // which the proxy understands
	e := pretend(t, report(), nil, "run --out html --calibrate "+far).ends(0).says("Redis at "+far,
		"lease calls", "this run uses network.round_trip=lognormal(", "this run uses redis.service_time=")
	testkit.Must(t, len(e.ran) == 1, "nothing was simulated")
	// then what it simulates is this server and this way to it: no round trip is shorter,
	trip, service := time.Duration(e.ran[0].Network.RoundTrip.P), time.Duration(e.ran[0].Redis.ServiceTime.P)
	testkit.Check(t, trip+service >= 930*time.Microsecond && service > 0, "round trip %v, service time %v", trip, service)
	// and the command to repeat it has the figures, not the server.
	testkit.Check(t, strings.Contains(e.stdout, "--set &#39;redis.service_time="+service.String()) &&
		!strings.Contains(e.stdout, "--calibrate"), "the page does not say how to repeat it")
	// Every command that simulates does the same.
	// A value by --set wins over a measured one.
	commands := []string{"sweep --vary policy.target=50ms", "compare --rivals central",
		"replay --trace " + fileOf(t, "time_s\n0\n1\n")}
	for _, command := range commands[:testkit.ShortOrLong(t, 1, len(commands), "other commands")] {
		e := pretend(t, report(), nil, command+" --calibrate="+server.Addr+" --set network.round_trip=7ms").ends(0).says(
			"this run uses redis.service_time=")
		testkit.Check(t, e.ran[0].Network.RoundTrip == sim.Constantly(7*time.Millisecond) &&
			!strings.Contains(e.stderr, "uses network"), "%+v\n%s", e.ran[0].Network, e.stderr)
	}
}

func TestCalibrateSaysWhyItCannot(t *testing.T) {
	stopped := redistest.Start(t)
	stopped.Kill()
	leasesim(t, "run --calibrate "+stopped.Addr).ends(1).says("Redis at "+stopped.Addr+" does not answer",
		"refused")
	leasesim(t, "run --calibrate localhost").ends(2).says("--calibrate", "neither host:port nor a URL")
	leasesim(t, "compare --live --calibrate localhost:1").ends(2).says("--live, which measures the run " +
		"itself")
	leasesim(t, "run --calibrate ''").ends(2).says("--calibrate is empty")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	execute(ctx, t, nil, "run --calibrate "+stopped.Addr).ends(
		exitInterrupted).says("--calibrate: interrupted").shows()

	redistest.RequireVersion(t, 6, "ACL")
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	testkit.NoErr(t, admin.Do(t.Context(), "ACL", "SETUSER", "yuzhi", "on", ">secret", "~yuzhi:*", "+evalsha",
		"+eval", "+time", "+get", "+set").Err())
	e := pretend(t, report(), nil, "run --calibrate redis://yuzhi:secret@"+server.Addr).ends(0).
		says("does not say how long its scripts take", "this run uses network.round_trip=")
	testkit.Check(t, !strings.Contains(e.stderr, "secret"), "%s", e.stderr)
}
