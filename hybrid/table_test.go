package hybrid

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// A key that goes to rest while somebody who makes room has taken it off the list stays in the table: otherwise one key
// would have two entries under one id, of which one is nobody's.
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
			return s.listed
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
