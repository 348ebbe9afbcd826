package hybrid_test

import (
	"context"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestAllowDoesNotAllocate: neither a decision of one key nor one of several allocates.
func TestAllowDoesNotAllocate(t *testing.T) {
	plenty := []hybrid.Limit{hybrid.PerSecond(1 << 40).WithBurst(1 << 40)}
	l := newLimiter(t, nil, hybrid.Config{Limits: plenty})
	strict := newLimiter(t, nil, hybrid.Config{Limits: plenty, Policy: hybrid.Policy{StrictExpiry: true}})
	empty := newLimiter(t, nil, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1)}}).Key("k")
	for empty.Allow() {
	}
	k := l.Key("k")
	three := l.Join(k, l.Key("2"), l.Key("3"))
	four := l.Join(k, l.Key("2"), l.Key("3"), l.Key("4"))
	for name, f := range map[string]func() bool{
		"Joined.Allow":      three.Allow,
		"Joined.Allow of 4": four.Allow,
		"Joined.AllowN":     func() bool { return three.AllowN(3) },
		"Joined.Wait":       func() bool { return three.Wait(context.Background()) == nil },
		"Key.Allow, strict": strict.Key("k").Allow,
		"Key.Allow, denied": empty.Allow,
		"Key.Allow":         k.Allow,
		"Key.TryAllow":      k.TryAllow,
		"Key.AllowN":        func() bool { return k.AllowN(3) },
		"Limiter.Allow":     func() bool { return l.Allow("k") },
	} {
		// A renewal on the scheduler's goroutine allocates now and then, which over ten thousand
		// decisions does not come to one allocation each.
		n := testing.AllocsPerRun(10000, func() { f() })
		testkit.Check(t, n == 0, "%s allocates %v times", name, n)
	}
}
