package faults

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// says is a Fate.Rewrite: whatever was asked, this is the answer.
func says(reply string) func([]byte) []byte { return func([]byte) []byte { return []byte(reply) } }

func TestRow09ATruncatedOrForeignReplyIsAnErrorAndTheConnectionEnds(t *testing.T) {
	t.Parallel()
	// given a process whose every token can be counted
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	for name, c := range map[string]struct {
		fate redistest.Fate
		is   error
	}{
		"half of it, and the end": {redistest.Fate{Rewrite: redistest.Half, Close: true}, lease.ErrUnavailable},
		"half of it, and nothing": {redistest.Fate{Rewrite: redistest.Half}, lease.ErrUnavailable},
		"HTTP, and the end":       {redistest.Fate{Rewrite: redistest.HTTP, Close: true}, lease.ErrUnavailable},
		"HTTP, and nothing":       {redistest.Fate{Rewrite: redistest.HTTP}, lease.ErrUnavailable},
		// go-redis panics on it.
		"more than a slice holds":    {redistest.Fate{Rewrite: says("*9223372036854775807\r\n"), Close: true}, lease.ErrUnavailable},
		"a status":                   {redistest.Fate{Rewrite: says("+OK\r\n")}, redisbucket.ErrReply},
		"a number":                   {redistest.Fate{Rewrite: says(":7\r\n")}, redisbucket.ErrReply},
		"nil":                        {redistest.Fate{Rewrite: says("$-1\r\n")}, lease.ErrUnavailable},
		"an empty list":              {redistest.Fate{Rewrite: says("*0\r\n")}, redisbucket.ErrReply},
		"a list of something else":   {redistest.Fate{Rewrite: says("*2\r\n:1\r\n+x\r\n")}, redisbucket.ErrReply},
		"a list inside of a list":    {redistest.Fate{Rewrite: says("*1\r\n*1\r\n:1\r\n")}, redisbucket.ErrReply},
		"a map":                      {redistest.Fate{Rewrite: says("%1\r\n+a\r\n:1\r\n")}, redisbucket.ErrReply},
		"an error that nobody knows": {redistest.Fate{Rewrite: says("-NONSENSE what is this\r\n")}, lease.ErrUnavailable},
		"bytes that mean nothing":    {redistest.Fate{Rewrite: says("\x00\xff\r\n")}, lease.ErrUnavailable},
		"a length that is none":      {redistest.Fate{Rewrite: says("*x\r\n")}, lease.ErrUnavailable},
	} {
		// when the replies are replaced
		proxy.Set(c.fate)
		f.failing(t)
		// then the error has a type, (a call that was left hanging before may end in between, with another one)
		var err error
		testkit.Eventually(t, name+": an error of its own kind", func() bool {
			_, _, err = f.ears.sum()
			return errors.Is(err, c.is)
		})
		proxy.Pass()
		// and does not claim that nothing was executed
		if !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrRefused) || errors.Is(err, lease.ErrPermanent) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: no key in %v", name, err)
		}
		// and later replies belong to their calls
		f.answered(t, 1)
	}
	load.Stop()
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
	// and nothing was drawn twice or lost
	f.check(t)
}

func TestRow09AnotherProgramOnThatPortIsAnOutage(t *testing.T) {
	t.Parallel()
	// given an HTTP server where Redis should be
	stub := httptest.NewServer(http.NotFoundHandler())
	defer stub.Close()
	var heard ears
	f := NewFleet(t, Options{Size: size, Addr: stub.Listener.Addr().String(), Store: heard.put, Config: hybrid.Config{
		Limits: []hybrid.Limit{limit}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny, StrictExpiry: true}, CallTimeout: callTimeout,
	}})
	// when it is asked
	load := f.Load("k", perEach)
	testkit.Eventually(t, "1000 requests, and an error", func() bool {
		_, failed, _ := heard.sum()
		return f.Seen("k", 0, f.Now()).Denied >= 1000 && failed > 0
	})
	load.Stop()
	// then everybody is denied, nobody waits, and the error has a type
	if st := f.Stats(); st.Admitted > 0 || st.Leased > 0 {
		t.Errorf("%+v", st)
	}
	f.CheckNobodyWaited("k", 0, f.Now(), nobodyWaits)
	if _, _, err := heard.sum(); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
