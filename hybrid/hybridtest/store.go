// Package hybridtest is for tests: FaultyStore is a lease.Store that fails on command, and CheckStore checks
// a lease.Store.
package hybridtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// CheckStore fails t if a store breaks the contract in the comment of lease.Store. open returns a store
// without buckets, once for each subtest. CheckStore runs in real time, not in a synctest bubble, and takes
// about a second with a local server. A failure prints the random seed.
func CheckStore(t *testing.T, open func(t *testing.T) lease.Store) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, lease.Store)
	}{
		{"answers are those of the specification", answersAgree},
		{"each call is answered once", answersOnce},
		{"each key has a bucket", keysStandApart},
		{"goroutines share the store", goroutinesShare},
		{"a call with an ended context reports its outcome", contextsEnd},
		{"optional interfaces", optionalInterfaces},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, open(t)) })
	}
}

// ttl outlasts a test, even on a machine that stalls.
const ttl = time.Minute

func configOf(limits ...lease.Limit) lease.Config {
	return lease.Config{Limits: limits, TTL: ttl, Target: 100 * time.Millisecond}
}

// seq numbers the calls of draw: the seq of one holder's calls must rise.
var seq atomic.Int64

func draw(key string, n int64, c lease.Config) *lease.Call {
	return &lease.Call{Key: key, Request: lease.Request{Holder: "h", Seq: seq.Add(1), Config: c, Want: n,
		Waiting: n, Weight: 1, Draw: true}}
}

// exchange makes calls and returns the groups that the store answered together.
func exchange(ctx context.Context, s lease.Store, calls ...*lease.Call) (groups [][]*lease.Call) {
	var mu sync.Mutex
	s.Exchange(ctx, calls, func(group []*lease.Call) {
		mu.Lock()
		defer mu.Unlock()
		groups = append(groups, group)
	})
	mu.Lock()
	defer mu.Unlock()
	return groups
}

func inspect(t *testing.T, s lease.Store, key string) lease.State {
	t.Helper()
	st, err := s.Configure(t.Context(), key, lease.OpInspect, lease.Config{})
	testkit.NoErr(t, err)
	return st
}

// holder makes the calls of one process for one key.
type holder struct {
	key, name string
	seq, held int64
	heard     lease.Grant
	heardBy   time.Time
	last      lease.Request
}

// next returns the next request of h: a renewal, a draw, a retry, or a request that must be refused.
func (h *holder) next(rng *rand.Rand, c lease.Config) lease.Request {
	if n := rng.IntN(20); n == 0 && h.seq > 0 {
		return h.last
	} else if n == 1 && h.seq > 1 {
		stale := h.last
		stale.Seq--
		return stale
	}
	h.seq++
	want := rng.Int64N(60)
	h.last = lease.Request{Holder: h.name, Seq: h.seq, Config: c, Weight: 1 + rng.Int64N(3), Want: want,
		Need: rng.Int64N(want + 1), Waiting: rng.Int64N(want + 1), Denied: rng.Int64N(3)}
	r := &h.last
	if h.held == 0 && rng.IntN(3) > 0 {
		r.Draw, r.Waiting = true, want
	} else {
		r.Remaining = rng.Int64N(h.held + 1)
		r.Returned = rng.Int64N(r.Remaining + 1)
		r.Remaining -= r.Returned
		if spent := h.held - r.Remaining - r.Returned; spent > 0 && rng.IntN(4) == 0 {
			r.Late = []lease.Late{{Kind: lease.LateRefund, Tokens: 1 + rng.Int64N(spent), Drawn: h.heard.Running}}
		}
	}
	if rng.IntN(8) == 0 {
		r.Late = append(r.Late, lease.Late{Kind: lease.LateDebt, Tokens: 1 + rng.Int64N(9), Age: time.Second})
	}
	if h.heard.Epoch > 0 {
		r.Epoch, r.Counter, r.LeaseMax = h.heard.Epoch, h.heard.Counter, max(h.heard.LeaseMax, h.heard.Frozen)
		r.HeardAt, r.HeardExpiry = h.heard.ServerTime, h.heard.Expiry
		r.HeardAge = time.Since(h.heardBy).Truncate(time.Microsecond)
	}
	switch rng.IntN(60) {
	case 0:
		r.Want = -1
	case 1:
		r.Config.Limits = nil
	}
	return *r
}

// answersAgree makes random calls and compares the answers with those of protocol.Bucket at the same server
// times.
func answersAgree(t *testing.T, s lease.Store) {
	rng := testkit.Rand(t)
	configs := []lease.Config{
		configOf(lease.PerSecond(100)), configOf(lease.PerSecond(10_000).WithBurst(50), lease.PerHour(5000)),
		configOf(lease.Sliding(80, 200*time.Millisecond)), configOf(lease.Calendar(300, time.Second, 0)),
		configOf(lease.PerHour(200), lease.Sliding(1000, time.Minute)), configOf(lease.Blocked),
	}
	var holders []*holder
	buckets, times := map[string]*protocol.Bucket{}, map[string]int64{}
	for _, key := range []string{"a", "b", "c"} {
		buckets[key] = new(protocol.Bucket)
		for _, name := range []string{"h", "g"} {
			holders = append(holders, &holder{key: key, name: name})
		}
	}
	granted := int64(0)
	for range 500 {
		h := holders[rng.IntN(len(holders))]
		b, c := buckets[h.key], configs[(int(h.key[0])+rng.IntN(2))%len(configs)]
		if rng.IntN(12) == 0 {
			op := lease.Op(rng.IntN(5))
			got, err := s.Configure(t.Context(), h.key, op, c)
			times[h.key] = max(times[h.key], got.ServerTime)
			want, wantErr := b.Configure(times[h.key], op, c)
			sameAnswer(t, fmt.Sprintf("%s: %v %v", h.key, op, c), want, wantErr, got, err)
			continue
		}
		call := &lease.Call{Key: h.key, Request: h.next(rng, c)}
		exchange(t.Context(), s, call)
		if call.Err == nil {
			times[h.key] = call.Grant.ServerTime
		}
		var want lease.Grant
		wantErr := b.Call(times[h.key], &call.Request, &want)
		sameAnswer(t, fmt.Sprintf("%s: %+v", h.key, call.Request), want, wantErr, call.Grant, call.Err)
		if call.Err == nil {
			h.heard, h.heardBy, h.held = want, time.Now(), call.Request.Remaining+want.Granted-want.Waited
			if want.Void {
				h.held -= call.Request.Remaining
			}
			granted += want.Granted
		}
	}
	testkit.Check(t, granted > 0, "nothing was granted, so nothing was compared")
}

func sameAnswer(t *testing.T, about string, want any, wantErr error, got any, err error) {
	t.Helper()
	for _, refusal := range []error{lease.ErrStale, lease.ErrInvalidRequest, lease.ErrInvalidConfig} {
		if errors.Is(wantErr, refusal) {
			testkit.Must(t, errors.Is(err, refusal) && !errors.Is(err, lease.ErrUnavailable),
				"%s: the error is %v, want %v", about, err, wantErr)
			return
		}
	}
	testkit.Must(t, err == nil && wantErr == nil && reflect.DeepEqual(got, want),
		"%s: the answer is\n%+v, %v, want\n%+v, %v", about, got, err, want, wantErr)
}

// answersOnce checks that Exchange passes each call to done once, and that an invalid call fails alone.
func answersOnce(t *testing.T, s lease.Store) {
	var calls []*lease.Call
	for i := range 70 {
		calls = append(calls, draw(fmt.Sprint("key ", i), 1, configOf(lease.PerHour(10))))
		if i%3 == 0 {
			calls[i].Request.Draw = false
		}
	}
	calls[7].Request.Want, calls[8].Request.Config.Limits = -1, nil
	wanted := map[int]error{7: lease.ErrInvalidRequest, 8: lease.ErrInvalidConfig}
	seen := map[*lease.Call]int{}
	for _, group := range exchange(t.Context(), s, calls...) {
		for _, c := range group {
			seen[c]++
		}
	}
	for i, c := range calls {
		testkit.Check(t, seen[c] == 1, "%q: Exchange reported %d answers, want 1", c.Key, seen[c])
		if want := wanted[i]; want != nil {
			testkit.Check(t, errors.Is(c.Err, want) && !errors.Is(c.Err, lease.ErrUnavailable),
				"%q: the error is %v, want %v", c.Key, c.Err, want)
		} else {
			testkit.Check(t, c.Err == nil && c.Grant.Granted == 1 && c.Grant.Counter == 1, "%q: %+v, %v", c.Key,
				c.Grant, c.Err)
		}
	}
}

// keysStandApart checks that keys of any bytes have separate buckets, and that a key and its lease.ShortKey
// have the same bucket.
func keysStandApart(t *testing.T, s lease.Store) {
	long := strings.Repeat("x", lease.KeyMax+1)
	for _, key := range []string{
		"", "a", "A", "{", "}", "{}", "{a}", "a}", "%", "%7D", "%25", "\x00", "a\x00b", "\xff\xfe", "\r\n", " ", "a:h",
		"*", "日本", long[1:], long, long + "}",
	} {
		first, second := draw(key, 99, configOf(lease.PerHour(10))), draw(key, 99, configOf(lease.PerHour(10)))
		exchange(t.Context(), s, first)
		exchange(t.Context(), s, second)
		for i, c := range []*lease.Call{first, second} {
			testkit.Check(t, c.Err == nil && c.Grant.Granted == int64(10-10*i), "%.50q: call %d: %+v, %v", key, i,
				c.Grant, c.Err)
		}
	}
	st := inspect(t, s, lease.ShortKey(long))
	testkit.Check(t, st.Exists && st.Levels[0] == 0, "the hash of a long key has another bucket: %+v", st)
	st = inspect(t, s, "new")
	testkit.Check(t, !st.Exists && !inspect(t, s, "new").Exists, "OpInspect creates a bucket: %+v", st)
}

func goroutinesShare(t *testing.T, s lease.Store) {
	var all sync.WaitGroup
	var mu sync.Mutex
	granted := map[string]int64{}
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				c := draw(fmt.Sprint("key ", i%5), 1, configOf(lease.PerHour(30)))
				c.Request.Holder = fmt.Sprint("holder ", g)
				exchange(t.Context(), s, c)
				testkit.Check(t, c.Err == nil, "%q: %v", c.Key, c.Err)
				mu.Lock()
				granted[c.Key] += c.Grant.Granted
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for key, n := range granted {
		testkit.Check(t, n == 30, "%q: %d are granted, want 30", key, n)
	}
}

// contextsEnd checks that a call with an ended context is granted, or has an error that wraps ErrRefused only
// if the store has not executed the call.
func contextsEnd(t *testing.T, s lease.Store) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c := draw("a", 1, configOf(lease.PerHour(10)))
	groups := exchange(ended, s, c)
	testkit.Check(t, len(groups) == 1, "Exchange reported %d answers, want 1", len(groups))
	testkit.Check(t, c.Err == nil && c.Grant.Granted == 1 || errors.Is(c.Err, lease.ErrUnavailable), "%+v, %v",
		c.Grant, c.Err)
	testkit.Check(t, !errors.Is(c.Err, lease.ErrRefused) || !inspect(t, s, "a").Exists,
		"the error of an executed call wraps ErrRefused: %v", c.Err)
}

func optionalInterfaces(t *testing.T, s lease.Store) {
	if p, ok := s.(lease.Pinger); ok {
		testkit.NoErr(t, p.Ping(t.Context()))
		testkit.Check(t, !inspect(t, s, "").Exists, "Ping creates a bucket")
	}
	if i, ok := s.(lease.Identifier); ok {
		testkit.Check(t, reflect.ValueOf(i.Identity()).Comparable() && i.Identity() == i.Identity(),
			"Identity is not equal to itself: %v", i.Identity())
	}
	c := draw("a", 1, configOf(lease.PerHour(10)))
	r, ok := s.(lease.Router)
	if !ok {
		return
	}
	before := r.NodeOf("a")
	exchange(t.Context(), s, c)
	testkit.Check(t, (before == -1 || before == c.Node) && (r.NodeOf("a") == -1 || r.NodeOf("a") == c.Node),
		"NodeOf is %d and then %d, Call.Node %d", before, r.NodeOf("a"), c.Node)
	testkit.Check(t, r.NodeName(c.Node+1000) == "", "a node that does not exist has a name")
}
