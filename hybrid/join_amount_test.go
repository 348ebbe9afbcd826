package hybrid_test

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// TakeUpTo takes the same amount of every key: what the one with the fewest tokens has.
func TestTakeUpToOfAJoinTakesWhatAllHave(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(bursts(map[string]int64{"a": 100, "b": 7, "c": 30}))
		j := joined(l, "a", "b", "c", "c") // of which c is asked for twice as much
		r, err := j.TakeUpTo(t.Context(), 5)
		check(t, err == nil && r.OK && r.Taken == 5, "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 50)
		check(t, err == nil && r.OK && r.Taken == 2 && r.Key == "b", "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 50)
		check(t, err == nil && !r.OK && r.Taken == 0 && r.Key == "b" && r.RetryAfter > 0, "%+v, %v", r, err)
		r, err = j.TakeUpTo(t.Context(), 0)
		check(t, err == nil && r.OK && r.Taken == 0, "%+v, %v", r, err)
		t.intact(l, map[string]int64{"a": 93, "b": 0, "c": 16})
		equal(t, l.Stats().Admitted, 7+7+14, "admitted")
		// A token of c is not enough for a request that needs two of it.
		must(t, l.AllowN("c", 15), "denied")
		time.Sleep(time.Second)
		r, err = joined(l, "a", "c", "c").TakeUpTo(t.Context(), 3)
		check(t, err == nil && !r.OK && r.Taken == 0 && r.Key == "c", "%+v, %v", r, err)
		t.intact(l, map[string]int64{"a": 93, "c": 1})
	})
}

// Where one of the Limiters only shadows, its denials do not count: the request is admitted if the
// others admit it, and says that it would have been denied.
func TestAJoinWithAShadow(t *testing.T) {
	bubble(t, func(t *world) {
		shadow, strict := bursts(map[string]int64{"s": 3}), bursts(map[string]int64{"k": 5})
		shadow.Policy.Shadow = true
		s, l := t.start(shadow), t.start(strict)
		j := s.Join(s.Key("s"), l.Key("k"))
		for i := range 5 {
			r, err := j.Take(t.Context(), 1)
			check(t, err == nil && r.OK && r.Shadowed == (i >= 3) && r.Taken == 1, "%d: %+v, %v", i, r, err)
			check(t, !r.Shadowed || r.Key == "s", "%+v", r)
		}
		check(t, !j.Allow(), "admitted although a limit that is no shadow denies")
		isErr(t, j.Wait(within(t, time.Minute)), hybrid.ErrWouldExceedDeadline)
		// Cancelling gives back what was taken, of which the shadow's part is nothing.
		noErr(t, l.ResetTo(t.Context(), "k", hybrid.PerHour(1).WithBurst(5)))
		time.Sleep(time.Millisecond) // what was drawn in the moment of a reset is worth nothing
		r, err := j.Reserve(t.Context(), 2)
		check(t, err == nil && r.OK() && r.Result().Shadowed, "%+v, %v", r.Result(), err)
		r.Cancel()
		t.intact(l, map[string]int64{"k": 5})
		conserved(t, s)
		equal(t, s.Stats().Admitted, 3, "admitted by the shadow")
	})
}
