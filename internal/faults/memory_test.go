package faults

import (
	"context"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestRow15OutOfMemoryWritesNothingAndComesBack(t *testing.T) {
	t.Parallel()
	// Given a process that has spent 10 of 100,
	ctx := context.Background()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb := client(t, server.Addr)
	var log diary
	cfg := patient(hourly, denying)
	cfg.Logger = log.logger()
	f := NewFleet(t, Options{Size: 1, Addr: server.Addr, Config: cfg})
	l := f.Limiters[0]
	f.Spend(0, key, 10)
	// when the server has no memory left,
	set(t, rdb, "maxmemory", "1")
	testkit.Eventually(t, "an answer without the store", func() bool {
		r, err := l.Take(ctx, key, 1)
		must(t, err)
		return !r.OK && r.Source == hybrid.SourceFallback // what is held is still spent, by all means
	})
	spent := l.Stats().Admitted
	stored := contents(t, rdb)
	failed := l.Stats().Errors
	testkit.Eventually(t, "more calls that fail", func() bool {
		if l.Allow(key) || l.Allow("another") {
			t.Fatal("admitted without the store")
		}
		return l.Stats().Errors >= failed+4
	})
	// then nothing was written, not even half,
	if now := contents(t, rdb); now != stored {
		t.Errorf("before:\n%s\nafter:\n%s", stored, now)
	}
	testkit.Eventually(t, "the log to say what is wrong, with which key", func() bool {
		text := log.String()
		return strings.Contains(text, "OOM") && (strings.Contains(text, "key="+key) ||
			strings.Contains(text, "key=another"))
	})
	// and when there is memory again, everything is where it was.
	set(t, rdb, "maxmemory", "0")
	testkit.Eventually(t, "a token", func() bool { return f.Allow(0, key) })
	must(t, l.Shutdown(ctx))
	s := l.Stats()
	if got := f.Balance(key); got+s.Burnt < hourly.Tokens-(spent+1) || got > hourly.Tokens-s.Admitted+1 {
		t.Errorf("%d left of %d after %d admitted and %d burnt", got, hourly.Tokens, s.Admitted, s.Burnt)
	}
}

func TestRow15OutOfMemoryUnderLoadDeniesAndRecovers(t *testing.T) {
	t.Parallel()
	// Given four processes under load,
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb := client(t, server.Addr)
	f, load := saturated(t, 4, server.Addr)
	before := rawOf(t, rdb, key)
	// when memory runs out for a while,
	set(t, rdb, "maxmemory", "1")
	testkit.Eventually(t, "everybody is denied", func() bool {
		return f.Next(key, 200).Admitted == 0
	})
	set(t, rdb, "maxmemory", "0")
	// then the rate comes back,
	took := f.CheckRecovers(key, busy.Tokens)
	load.Stop()
	t.Logf("the second at the rate began %v after there was memory", took.After)
	// it is the same bucket, which nothing has damaged, and the promise held.
	if after := rawOf(t, rdb, key); after.epoch != before.epoch {
		t.Errorf("before %+v, after %+v", before, after)
	}
	f.CheckBound(key, busy, 0)
}
