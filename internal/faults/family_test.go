//go:build unix

package faults

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// stampRecord is where admissions of all processes of a test are stamped, on the clock that they
// share and in memory that outlives a kill.
type stampRecord struct {
	file *stamps.File
	path string
}

// openRecord is a child's.
func openRecord(path string) (*stampRecord, error) {
	f, err := stamps.Open(path)
	return &stampRecord{f, path}, err
}

// stamp makes one request for one token, and records when it was admitted.
func (r *stampRecord) stamp(verb func() bool) bool {
	before := stamps.Now()
	ok := verb()
	if ok {
		r.file.Append(before, stamps.Now()+1) // the file itself tells worst that it was too small
	}
	return ok
}

func (r *stampRecord) spans() []audit.Span { return r.file.AppendSpans(nil) }

// worst is the window that exceeds the limit by most, over all that was recorded so far.
func (r *stampRecord) worst(t *testing.T, l hybrid.Limit) audit.Window {
	t.Helper()
	if n := r.file.Overflowed(); n > 0 {
		t.Fatalf("%d admissions found no room in the record", n)
	}
	return worstOf(t, r.spans(), l, l.Capacity())
}

// family is what a test has on one server: limiters in its own process, child processes, and the
// record of all of them. Its bucket is that of key.
type family struct {
	*Fleet
	*stampRecord
	t    *testing.T
	addr string
}

func newFamily(t *testing.T) *family {
	t.Helper()
	addr := redistest.Start(t).Addr
	path := filepath.Join(t.TempDir(), "stamps")
	const room = 1 << 20 // for the admissions of any of the tests; the file is sparse
	file, err := stamps.Create(path, room)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return &family{NewFleet(t, Options{Addr: addr}), &stampRecord{file, path}, t, addr}
}

// limiter is one more process of the fleet, in the test's own.
func (f *family) limiter(o orders) *hybrid.Limiter { return f.Add(o.config(), f.direct) }

// child starts a child process.
func (f *family) child(o orders, env ...string) *process {
	f.t.Helper()
	o.Redis, o.Record = f.addr, f.path
	return launch(f.t, o, env...)
}

// children starts n child processes under load, and lets them go when all are ready.
func (f *family) children(n int, o orders) []*process {
	f.t.Helper()
	ps := make([]*process, n)
	for i := range ps {
		ps[i] = f.child(o)
	}
	for _, p := range ps {
		p.hear("ready", new(any))
	}
	for _, p := range ps {
		p.tell("start")
	}
	return ps
}

// admitted is how many tokens were admitted so far.
func (f *family) admitted() (n int64) {
	for _, s := range f.spans() {
		n += s.N
	}
	return n
}

// awaitAdmitted waits until n more tokens have been admitted.
func (f *family) awaitAdmitted(n int64) {
	f.t.Helper()
	want := f.admitted() + n
	testkit.Eventually(f.t, fmt.Sprintf("%d tokens admitted", want),
		func() bool { return f.admitted() >= want })
}

// awaitEmptyLedger waits until the bucket counts nothing as leased.
func (f *family) awaitEmptyLedger() {
	f.t.Helper()
	testkit.Eventually(f.t, "an empty ledger", func() bool { return f.State(key).Ledger == 0 })
}

// outlastLeases waits until leases that nobody renews from now on have ended: T and two slices of
// T/7, by the server's clock. T is the one in force, which grows where calls take long.
func (f *family) outlastLeases() {
	f.t.Helper()
	began := f.State(key).ServerTime
	testkit.Eventually(f.t, "the end of all leases", func() bool {
		s := f.State(key)
		return time.Duration(s.ServerTime-began)*time.Microsecond > s.Config.TTL*9/7
	})
}

// finish shuts processes down and checks their accounts.
func (f *family) finish(ps ...*process) []report {
	f.t.Helper()
	rs := make([]report, len(ps))
	for i, p := range ps {
		rs[i] = p.finish()
		conserved(f.t, fmt.Sprint("process ", i), rs[i].Stats)
	}
	return rs
}

// report is what a child says of itself at its end.
type report struct {
	Stats    hybrid.Stats
	MostHeld int64 // the largest holding it ever had
	Error    string
}
