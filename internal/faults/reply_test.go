package faults

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// says is a network on which, whatever was asked, this is the answer.
func says(reply string) redistest.Fate {
	return redistest.Fate{Rewrite: func([]byte) []byte { return []byte(reply) }}
}

func TestRow09ATruncatedOrForeignReplyIsAnErrorAndTheConnectionEnds(t *testing.T) {
	t.Parallel()
	// given a process whose every token can be counted
	server, proxy := behindProxy(t)
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	half := redistest.Fate{Rewrite: func(reply []byte) []byte { return reply[:len(reply)/2] }}
	other := says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	ended := func(f redistest.Fate) redistest.Fate { f.Close = true; return f }
	for name, c := range map[string]struct {
		fate redistest.Fate
		is   error
	}{
		"half of it, and the end":    {ended(half), lease.ErrUnavailable},
		"half of it, and nothing":    {half, lease.ErrUnavailable},
		"HTTP, and the end":          {ended(other), lease.ErrUnavailable},
		"HTTP, and nothing":          {other, lease.ErrUnavailable},
		"more than a slice holds":    {ended(says("*9223372036854775807\r\n")), lease.ErrUnavailable}, // go-redis panics
		"a status":                   {says("+OK\r\n"), redisbucket.ErrReply},
		"a number":                   {says(":7\r\n"), redisbucket.ErrReply},
		"nil":                        {says("$-1\r\n"), lease.ErrUnavailable},
		"an empty list":              {says("*0\r\n"), redisbucket.ErrReply},
		"a list of something else":   {says("*2\r\n:1\r\n+x\r\n"), redisbucket.ErrReply},
		"a list inside of a list":    {says("*1\r\n*1\r\n:1\r\n"), redisbucket.ErrReply},
		"a map":                      {says("%1\r\n+a\r\n:1\r\n"), redisbucket.ErrReply},
		"an error that nobody knows": {says("-NONSENSE what is this\r\n"), lease.ErrUnavailable},
		"bytes that mean nothing":    {says("\x00\xff\r\n"), lease.ErrUnavailable},
		"a length that is none":      {says("*x\r\n"), lease.ErrUnavailable},
	} {
		// when the replies are replaced
		proxy.Set(c.fate)
		f.failing(t)
		// then the error has a type, (a call that was left hanging before may end in between, with
		// another one)
		var err error
		testkit.Eventually(t, name+": an error of its own kind", func() bool {
			_, _, err = f.ears.sum()
			return errors.Is(err, c.is)
		})
		proxy.Pass()
		// and does not claim that nothing was executed
		if !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrRefused) ||
			errors.Is(err, lease.ErrPermanent) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("%s: no key in %v", name, err)
		}
		// and later replies belong to their calls
		f.answered(t, 1)
	}
	load.Stop()
	f.CheckNobodyWaited("k", 0, f.Now())
	// and nothing was drawn twice or lost
	f.check(t)
}

func TestRow06ADuplicateReplyIsDropped(t *testing.T) {
	t.Parallel()
	// given a fleet whose every token can be counted, on a network that delivers every reply twice
	server, proxy := behindProxy(t)
	f := newStock(t, proxy.Addr, server.Addr, size, hybrid.Config{})
	proxy.Set(redistest.Fate{Rewrite: func(reply []byte) []byte { return bytes.Repeat(reply, 2) }})
	// when it is used
	load := f.Load("k", perEach)
	f.answered(t, 10)
	load.Stop()
	proxy.Pass()
	// then a reply is good for one call
	f.check(t)
}

func TestRow06ALateReplyIsDroppedOnceTheRetryWasAnswered(t *testing.T) {
	t.Parallel()
	// given a process whose every token can be counted
	server, proxy := behindProxy(t)
	f := newStock(t, proxy.Addr, server.Addr, 1, hybrid.Config{CallTimeout: time.Second})
	load := f.Load("k", perEach)
	f.answered(t, 1)
	// when a call is executed and its reply is held back
	release := proxy.Hold()
	defer release()
	f.more(t, "calls without answer", 1, func(sent, _ int64) int64 { return sent })
	// until it was sent again, and that was answered
	proxy.Pass()
	f.answered(t, 2)
	release()
	f.answered(t, 2)
	load.Stop()
	// then the late reply changes nothing
	f.check(t)
}

func TestRow06RepliesThatComeTooLateAdmitNothing(t *testing.T) {
	t.Parallel()
	// given a fleet on an ordinary bucket
	server, proxy := behindProxy(t)
	f := NewFleet(t, Options{Size: size, Addr: proxy.Addr, Direct: server.Addr, Config: ordinary(strict)})
	load := f.Load("k", perEach)
	f.Warm()
	for range 2 {
		// when all replies are held back until every limiter has sent several calls, and then come at
		// once
		release := proxy.Hold()
		before := proxy.Calls()
		testkit.Eventually(t, "calls without answer", func() bool { return proxy.Calls() >= before+3*size })
		release()
		proxy.Pass()
		f.AwaitRecovery(limit.Tokens)
	}
	load.Stop()
	// then what they bring is within the bound
	f.CheckBound("k", limit, 0)
	f.CheckConserved()
	f.CheckNobodyWaited("k", 0, f.Now())
}
