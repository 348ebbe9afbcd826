package faults

import (
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The names by which files that are not converted yet call the oracles, and awaitRecovery, whose
// place awaitLeased takes with them.

func (f *fleet) checkNobodyWaited(name string, from, to time.Duration) {
	f.t.Helper()
	f.checkAnswered(name, from, to)
}

func (f *fleet) checkRecovers(rate int64) {
	f.t.Helper()
	f.awaitRecovery(rate)
}

type recovery struct {
	f     *fleet
	want  int64 // of leased, in the end
	after time.Duration
}

func (f *fleet) recovers(rate int64) *recovery { return &recovery{f: f, want: f.leased() + rate} }

func (r *recovery) look() bool { return r.f.leased() >= r.want }

func (r *recovery) checkInTime(time.Duration) {}

// awaitRecovery waits until leases have admitted as many tokens as the rate makes in a second.
func (f *fleet) awaitRecovery(rate int64) {
	f.t.Helper()
	testkit.Eventually(f.t, fmt.Sprint(rate, " more admitted by leases"), f.recovers(rate).look)
}
