package hybrid

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A key that goes to rest stays in the table, even where another request has just taken it off the list to
// make room: otherwise one key would have two entries under one id, one of them outside the table.
func TestAKeyThatRestsWhileRoomIsMadeStaysOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(memory.New(nil), Config{Limits: []Limit{PerHour(100)}, KeysMax: 10})
		testkit.NoErr(t, err)
		defer l.Close()
		// Given a key that is idle and not yet at rest,
		testkit.NoErr(t, l.Wait(t.Context(), "k"))
		m := l.first
		s := m.keys.find("k")
		listed := func() bool {
			m.keys.idle.mu.Lock()
			defer m.keys.idle.mu.Unlock()
			return s.next != nil
		}
		for !listed() {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		// when it is popped, goes to rest, and is dropped only then,
		popped, e, _ := m.keys.idle.pop(0, true)
		testkit.Must(t, popped == s && e != nil, "popped %v with %v", popped, e)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		testkit.Must(t, s.entry.Load() == nil, "not at rest")
		testkit.Check(t, !m.drop(popped, e), "a key at rest was dropped by the request that had popped it")
		// then it is still there, on its list, and comes back as one.
		testkit.Check(t, m.keys.find("k") == s && listed(), "the key is not in the table, or on no list")
		k := l.Key("k")
		testkit.NoErr(t, k.Wait(t.Context()))
		testkit.Check(t, k.Allow() && l.Allow("k") && k.e.Load() == m.keys.active("k"), "two entries for one key")
	})
}

// A long name is kept as its hash, here and in the store, and is a key of its own all the same.
// Callers and LimitsFor use its full name.
func TestLongNamesAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given limits that depend on the end of a name of 10 kB,
		var asked []string
		store := memory.New(nil)
		l, err := New(store, Config{LimitsFor: func(_ context.Context, key string) ([]Limit, error) {
			asked = append(asked, key)
			return []Limit{PerHour(int64(1 + key[len(key)-1] - '0'))}, nil
		}})
		testkit.NoErr(t, err)
		defer l.Close()
		for i := range 5 {
			// when it is used by name, by handle, and again after a rest,
			name := strings.Repeat("x", 10_000) + fmt.Sprint(i)
			k, n := l.Key(name), 0
			for l.Allow(name) || k.Allow() {
				n++
			}
			r, err := l.Take(t.Context(), name, 1)
			st, _ := store.Configure(t.Context(), name, lease.OpInspect, lease.Config{})
			time.Sleep(2 * time.Second)
			k.TryAllow()
			// then each has a bucket of its own, with its own limits, in the store too,
			testkit.Check(t, n == i+1 && err == nil && r.Limit == PerHour(int64(i+1)) && k.Name() == name,
				"%d: %d admitted, %+v, %v", i, n, r, err)
			testkit.Check(t, st.Exists && st.Levels[0] == 0, "%d: %+v", i, st)
			testkit.Check(t, len(asked) >= 2 && asked[0] == name && asked[len(asked)-1] == name,
				"LimitsFor was asked %d times", len(asked))
			asked = nil
			// and what the table keeps is short.
			s := l.first.keys.find(name)
			testkit.Must(t, s != nil && len(s.name) <= 80, "kept as %v", s)
		}
		testkit.Check(t, l.Stats().Keys == 5, "%+v", l.Stats())
	})
}

// BenchmarkTable is the table alone, without scheduler and lease calls: 200,000 keys come, each
// with its entry, go to rest, and as many others push them out. The reference of the ratios is the
// goal, 500,000 a second and core.
func BenchmarkTable(b *testing.B) {
	const million, goal = 200_000, 500_000
	cfg := Config{Limits: []Limit{PerHour(1000)}, KeysMax: million}
	g := newGroup(memory.New(nil), cfg.withDefaults())
	g.watch()
	m := g.newMember(0)
	names := make([]string, 2*million)
	for i := range names {
		names[i] = fmt.Sprintf("customer:%07d", i)
	}
	took := make([]time.Duration, million)
	for at, name := range []string{"creation", "eviction"} {
		start := time.Now()
		last := start
		for i, n := range names[at*million : (at+1)*million] {
			r := m.request(n, 1, protocol.OneCall)
			e, err := m.activate(&r)
			testkit.NoErr(b, err)
			e.mu.Lock()
			m.keys.idle.push(e.slot, clock.Instant(i), time.Hour)
			e.restLocked(clock.Instant(i))
			e.mu.Unlock()
			now := time.Now()
			took[i] = now.Sub(last)
			last = now
		}
		rate := million / last.Sub(start).Seconds()
		b.ReportMetric(rate, name+"s/s")
		b.ReportMetric(rate/goal, name+"s-ratio")
		b.ReportMetric(slices.Max(took).Seconds()*1e3, name+"-worst-ms")
		m.scheduler.first, m.scheduler.last = nil, nil // all have gone to rest
	}
	testkit.Must(b, m.keys.size.Load() == million, "%d keys", m.keys.size.Load())
}
