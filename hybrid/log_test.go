package hybrid_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// What an operator should know is logged, and once.
func TestTheLogSaysOnceWhatTheLimitsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given a network that is slow beside a small burst, and a process that was deployed with other limits
		// under the same version,
		s := newFaulty()
		s.every(verdict{delay: 20 * time.Millisecond})
		first := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000).WithBurst(500))})
		if !first.Allow("k") {
			t.Fatal("denied")
		}
		var out bytes.Buffer
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000).WithBurst(10)), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		// when it is used,
		for _, key := range []string{"k", "k2", "k3", "k"} {
			l.Allow(key)
			time.Sleep(time.Second)
		}
		// then the log says each thing once, with the cure.
		synctest.Wait()
		for _, want := range []string{"Target reduced", "overcommit=70", "same version with other limits"} {
			if n := strings.Count(out.String(), want); n != 1 {
				t.Errorf("%q is there %d times in\n%s", want, n, out.String())
			}
		}
		if st := l.Stats(); st.Conflicts != 1 {
			t.Errorf("%+v", st)
		}
	})
}
