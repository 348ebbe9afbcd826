//go:build unix

package faults

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// recordSize is room for the admissions of any of the tests; the file is sparse.
const recordSize = 1 << 20

// stampRecord is where admissions of all processes of a test are stamped.
type stampRecord struct {
	file *stamps.File
	path string
}

// newRecord makes one that lasts as long as the test.
func newRecord(t *testing.T) *stampRecord {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stamps")
	f, err := stamps.Create(path, recordSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &stampRecord{f, path}
}

// openRecord is a child's.
func openRecord(path string) (*stampRecord, error) {
	f, err := stamps.Open(path)
	return &stampRecord{f, path}, err
}

// ask makes one request for one token, and records when it was admitted.
func (r *stampRecord) ask(verb func() bool) bool {
	before := stamps.Now()
	ok := verb()
	if ok {
		r.file.Append(before, stamps.Now()+1) // the file itself tells worst that it was too small
	}
	return ok
}

// worst is the window that exceeds the limit by most, over all that was recorded so far.
func (r *stampRecord) worst(t *testing.T, l hybrid.Limit) audit.Window {
	t.Helper()
	if n := r.file.Overflowed(); n > 0 {
		t.Fatalf("%d admissions found no room in the record", n)
	}
	return worstOf(t, r.file.AppendSpans(nil), l, l.Capacity())
}

// worstOf is audit.Worst for a burst of its own.
func worstOf(t *testing.T, spans []audit.Span, l hybrid.Limit, burst int64) audit.Window {
	t.Helper()
	w, err := audit.Worst(spans, audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sum is how many tokens were admitted.
func sum(spans []audit.Span) (n int64) {
	for _, s := range spans {
		n += s.N
	}
	return n
}

// watched is a Store that remembers the largest holding that any reply left its process with.
type watched struct {
	lease.Store
	mu   sync.Mutex
	most int64
	last lease.Grant
}

// Exchange implements lease.Store.
func (s *watched) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		s.mu.Lock()
		for _, c := range group {
			if c.Err != nil {
				continue
			}
			s.last = c.Grant
			held := c.Grant.Granted - c.Grant.Waited
			if !c.Grant.Void {
				held += c.Request.Remaining
			}
			s.most = max(s.most, held)
		}
		s.mu.Unlock()
		done(group)
	})
}

func (s *watched) mostHeld() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// lastGrant is the reply that came last.
func (s *watched) lastGrant() lease.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// report is what a child says of itself at its end.
type report struct {
	Stats    hybrid.Stats
	MostHeld int64 // the largest holding it ever had: L
	Error    string
}

// conserved is oracle C: no token of a holder was lost or forged.
func conserved(t *testing.T, who string, s hybrid.Stats) {
	t.Helper()
	if s.Leased != s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held {
		t.Errorf("%s: tokens were lost or forged: %+v", who, s)
	}
}
