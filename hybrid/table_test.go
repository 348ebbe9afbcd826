package hybrid

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// A key that goes to rest while somebody who makes room has taken it off the list stays in the
// table: otherwise one key would have two entries under one id, of which one is nobody's.
func TestAKeyThatRestsWhileRoomIsMadeStaysOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(lease.NewMemoryStore(nil), Config{Limits: []Limit{PerHour(100)}, KeysMax: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		// Given a key that is idle and not yet at rest,
		if !l.Allow("k") {
			t.Fatal("denied")
		}
		s := l.keys.find("k")
		listed := func() bool {
			l.keys.idle.mu.Lock()
			defer l.keys.idle.mu.Unlock()
			return s.next != nil
		}
		for !listed() {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		// when it is popped, goes to rest, and is dropped only then,
		popped, e, _ := l.keys.idle.pop(0, true)
		if popped != s || e == nil {
			t.Fatalf("popped %v with %v", popped, e)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.entry.Load() != nil {
			t.Fatal("not at rest")
		}
		if l.drop(popped, e) {
			t.Error("a key at rest was dropped by somebody who had popped it before")
		}
		// then it is still there, on its list, and comes back as one.
		if l.keys.find("k") != s || !listed() {
			t.Error("the key is not in the table, or on no list")
		}
		k := l.Key("k")
		if !k.Allow() || !l.Allow("k") || k.e.Load() != l.keys.inUse("k") {
			t.Error("two entries for one key")
		}
	})
}

// A long name is kept as its hash, here and in the store, and is a key of its own all the same: a
// flood of long names takes no more room than one of short ones. Who asks by it, and LimitsFor,
// know it by its own name.
func TestLongNamesAreNotKept(t *testing.T) {
	long := func(i int) string { return strings.Repeat("x", 10_000) + strconv.Itoa(i) }
	synctest.Test(t, func(t *testing.T) {
		// Given limits that depend on the end of a name of 10 kB,
		var asked []string
		store := lease.NewMemoryStore(nil)
		l, err := New(store, Config{LimitsFor: func(key string) []Limit {
			asked = append(asked, key)
			return []Limit{PerHour(int64(1 + key[len(key)-1] - '0'))}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range 5 {
			// when it is used by name, by handle, and again after a rest,
			k := l.Key(long(i))
			n := 0
			for l.Allow(long(i)) || k.Allow() {
				n++
			}
			r, err := l.Take(t.Context(), long(i), 1)
			st, _ := store.Configure(t.Context(), long(i), lease.OpInspect, lease.Config{})
			time.Sleep(2 * time.Second)
			k.TryAllow()
			// then each has a bucket of its own, with its own limits, in the store too,
			if n != i+1 || err != nil || r.Limit != PerHour(int64(i+1)) || k.Name() != long(i) ||
				!st.Exists || st.Levels[0] != 0 {
				t.Errorf("%d: %d admitted, %+v, %v; %+v", i, n, r, err, st)
			}
			if len(asked) < 2 || asked[0] != long(i) || asked[len(asked)-1] != long(i) {
				t.Errorf("LimitsFor was asked %d times", len(asked))
			}
			asked = nil
			// and what the table keeps is short.
			if s := l.keys.find(long(i)); s == nil || len(s.name) > 80 {
				t.Errorf("kept as %q", s.name)
			}
		}
		if got := l.Stats().Keys; got != 5 {
			t.Errorf("%d keys", got)
		}
	})
}
