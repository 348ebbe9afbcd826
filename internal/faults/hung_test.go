package faults

import (
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// hang stops a server as a process that hangs, and lets it go on.
func hang(t *testing.T, server *redistest.Server) outage {
	return outage{
		inject: func() { must(t, server.Signal(syscall.SIGSTOP)) },
		cure:   func() { must(t, server.Signal(syscall.SIGCONT)) },
	}
}

func TestRow03AHungServerIsAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all := newModes(t, server.Addr, "", nil)
	// when the server stops and goes on, and then executes every probe that was sent meanwhile
	all.suffer(t, hang(t, server))
}

func TestRow03WhatAHungServerExecutesLaterIsDrawnForOnce(t *testing.T) {
	t.Parallel()
	// given a fleet whose every token can be counted
	server := redistest.Start(t)
	f := newStock(t, server.Addr, "", size, hybrid.Config{})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	// when the server stops until every limiter has sent its call three times over, and then executes all of them
	o := hang(t, server)
	o.inject()
	f.more(t, "calls to a server that hangs", 3, func(sent, _ int64) int64 { return sent })
	o.cure()
	f.answered(t, 2)
	load.Stop()
	// then each was drawn for once
	f.check(t)
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
}

func TestRow08ABlackHoleIsAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	// (the black hole keeps every connection that a probe was sent over until the client's read timeout, a minute here: so
	// the pool is larger than the number of probes)
	all := newModes(t, proxy.Addr, server.Addr, func(o *redis.Options) { o.PoolSize = 1000 })
	// when the network takes everything and answers nothing, and later serves new connections again
	all.suffer(t, outage{inject: func() { proxy.Set(redistest.Fate{BlackHole: true}) }, cure: proxy.Pass})
}

func TestRow10AnExhaustedPoolDelaysRenewalsAndNotRequests(t *testing.T) {
	t.Parallel()
	// given clients with one connection each
	server := redistest.Start(t)
	all := newModes(t, server.Addr, "", func(o *redis.Options) { o.PoolSize = 1 })
	// when that hangs
	all.suffer(t, hang(t, server))
}
