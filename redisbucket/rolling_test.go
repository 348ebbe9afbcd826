package redisbucket_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// rollout is a fleet of two releases on one Redis, in virtual time. Every admission is audited: excess
// is how much the worst window admitted beyond the limit's rate (Lindley 1952), in tokens.
type rollout struct {
	*testing.T
	server *miniredis.Miniredis
	policy hybrid.Policy

	mu     sync.Mutex
	at     time.Time
	excess float64
}

// clockStep is the most by which the server's clock lags behind the bubble's.
const clockStep = 5 * time.Millisecond

var rolled = hybrid.PerSecond(100).WithBurst(20)

// start starts a process of the release that stores layout number. It asks 67 times a second, until stop
// is called. admitted returns how often it was admitted since the last time.
func (r *rollout) start(number int) (admitted func() int64, log *lines, stop func()) {
	client := redis.NewClient(&redis.Options{Addr: r.server.Addr(), MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	log = new(lines)
	l, err := hybrid.New(redisbucket.NewOfLayout(r.T, client, number), hybrid.Config{
		Limits: []hybrid.Limit{rolled}, Policy: r.policy, Logger: slog.New(slog.NewTextHandler(log, nil))})
	testkit.NoErr(r.T, err)
	end, ended := make(chan struct{}), make(chan struct{})
	var lately int64
	go func() {
		defer close(ended)
		for tick := time.Tick(15 * time.Millisecond); ; {
			select {
			case now := <-tick:
				if l.Allow("k") {
					r.admit(now, &lately)
				}
			case <-end:
				return
			}
		}
	}()
	admitted = func() int64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := lately
		lately = 0
		return n
	}
	return admitted, log, func() {
		close(end)
		<-ended
		l.Close()
		client.Close()
	}
}

func (r *rollout) admit(now time.Time, lately *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.excess = max(0, r.excess-now.Sub(r.at).Seconds()*rolled.Rate()) + 1
	r.at = now
	*lately++
	if most := float64(rolled.Burst) + 1; r.policy.Fallback == hybrid.FallbackDeny && r.excess > most {
		r.Errorf("the worst window admitted %.2f beyond the rate, want %.0f at most", r.excess, most)
	}
}

// TestTwoReleasesShareARedis: processes of a release that stores layout 3 join those of one that knows
// layout 2 alone, and leave again. The bound holds for all of them together with FallbackDeny; with
// FallbackLocalShare those of the older release admit their local shares beside it.
func TestTwoReleasesShareARedis(t *testing.T) {
	t.Parallel()
	for name, fallback := range map[string]hybrid.Fallback{
		"deny": hybrid.FallbackDeny, "local share": hybrid.FallbackLocalShare,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.RequireMiniredis(t)
			if fallback != hybrid.FallbackDeny {
				testkit.LongOnly(t) // TestFallbacks in hybrid has what they give
			}
			server := miniredis.RunT(t)
			synctest.Test(t, func(t *testing.T) {
				r := &rollout{T: t, server: server, policy: hybrid.Policy{Fallback: fallback}, at: time.Now()}
				stopClock := r.followClock()
				// given two processes of the older release, when two of the newer one join,
				older, newer := make([]func() int64, 2), make([]func() int64, 2)
				var logs []*lines
				var stops []func()
				for i := range older {
					admitted, log, stop := r.start(2)
					older[i], logs = admitted, append(logs, log)
					defer stop()
				}
				time.Sleep(2 * time.Second)
				for i := range newer {
					admitted, _, stop := r.start(3)
					newer[i], stops = admitted, append(stops, stop)
				}
				time.Sleep(2 * time.Second)
				lately(older)
				lately(newer)
				time.Sleep(3 * time.Second)

				// then the newer ones have the limit, the older ones what their Fallback gives,
				limited, local := lately(newer), lately(older)
				testkit.Check(t, limited >= 280, "the newer release admitted %d in three seconds", limited)
				if fallback == hybrid.FallbackDeny {
					testkit.Check(t, local == 0, "the older release admitted %d", local)
				} else {
					testkit.Check(t, local > 240 && float64(local) <= 3*rolled.Rate()+2*float64(rolled.Burst),
						"the older release admitted %d, at most the rate and a burst each", local)
				}
				// and say so once a process, not once a call.
				for _, log := range logs {
					said := strings.Count(log.String(), "newer release of yuzhi")
					testkit.Check(t, said == 1, "said %d times:\n%s", said, log)
				}

				// When they leave, the older ones have the limit again once the bucket has been forgotten.
				for _, stop := range stops {
					stop()
				}
				time.Sleep(10 * time.Second)
				lately(older)
				time.Sleep(3 * time.Second)
				limited = lately(older)
				testkit.Check(t, limited >= 280 && limited <= 320, "then the older release admitted %d", limited)
				stopClock()
			})
		})
	}
}

// lines is a log that is read while a process writes to it.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func lately(each []func() int64) (n int64) {
	for _, admitted := range each {
		n += admitted()
	}
	return n
}

// followClock moves the server's clock with the bubble's until stop is called.
func (r *rollout) followClock() (stop func()) {
	r.server.SetTime(time.Now())
	tick, end := time.NewTicker(clockStep), make(chan struct{})
	go func() {
		for {
			select {
			case now := <-tick.C:
				r.server.FastForward(clockStep)
				r.server.SetTime(now)
			case <-end:
				return
			}
		}
	}()
	return func() { tick.Stop(); close(end) }
}
