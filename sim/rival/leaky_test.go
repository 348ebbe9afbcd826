package rival

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAQueueDecidesAsGCRAForSingleTokens(t *testing.T) {
	rng := testkit.Rand(t)
	for _, limits := range someLimits {
		for range 20 {
			f := fleetOf(3, limits...)
			all := draw(rng, f, 1000, 1)
			if text := difference(all, decide(start(t, "gcra", f), all), decide(start(t, "leaky", f), all)); text != "" {
				t.Fatalf("%v: gcra and leaky part at %s", limits, text)
			}
		}
	}
}

func TestAQueueFreesARequestsPlacesAllAtOnce(t *testing.T) {
	// Given a queue of 5 places that drains one in 100 ms, with requests for 3 and for 2 in it
	queue, bucket := start(t, "leaky", fleetOf(1, tenPerSecond)), start(t, "gcra", fleetOf(1, tenPerSecond))
	for _, a := range []Algorithm{queue, bucket} {
		if !a.Decide(0, 0, 0, 3) || !a.Decide(0, 0, 0, 2) {
			t.Fatal("5 places must take requests for 3 and for 2")
		}
	}
	// Then the first holds all its places until 300 ms are over, where a bucket has tokens as they come,
	if queue.Decide(300*ms-1, 0, 0, 1) || !bucket.Decide(300*ms-1, 0, 0, 1) {
		t.Error("before 300 ms the queue must refuse one and the bucket must not")
	}
	// and then gives them back together.
	if got := burst(queue, 300*ms, 0); got != 3 {
		t.Errorf("%d were admitted at 300 ms, want 3", got)
	}
	// The second drains after the first: until 500 ms.
	if burst(queue, 500*ms-1, 0) != 0 || burst(queue, 500*ms, 0) != 2 {
		t.Error("the second request must give back its 2 places at 500 ms")
	}
}

func TestAQueueUsesItsMemoryAgain(t *testing.T) {
	// Given a queue that is full and never empty
	a := start(t, "leaky", fleetOf(1, tenPerSecond))
	for now := range 100 * second / ms {
		a.Decide(now*ms, 0, 0, 1)
	}
	if q := a.(*guarded).Algorithm.(*leaky).queues[0]; q.taken != 5 || cap(q.waiting.all) > 16 {
		t.Errorf("a queue of 5 places, of which %d are taken, has memory for %d", q.taken, cap(q.waiting.all))
	}
}
