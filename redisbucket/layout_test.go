package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// NewOfLayout returns a Store as a release has it that stores layout number and reads those before.
func NewOfLayout(t testing.TB, rdb redis.UniversalClient, number int) *Store {
	t.Helper()
	s := storeOn(t, rdb)
	for _, sc := range []**script{&s.leaseScript, &s.drawsScript, &s.configureScript} {
		line, rest, _ := strings.Cut((*sc).source, "\n")
		testkit.Must(t, line == fmt.Sprintf("local layout, oldest = %d, %d", layout, layoutOldest), "the script begins with %q", line)
		*sc = scriptOf(fmt.Sprintf("local layout, oldest = %d, %d\n%s", number, layoutOldest, rest))
	}
	return s
}

func TestThePagesNameTheLayout(t *testing.T) {
	for page, want := range map[string]string{
		"../CHANGELOG.md": "the number of its layout, %d in this release", "../docs/protocol.md": "its layout's number, %d today",
	} {
		text, err := os.ReadFile(page)
		testkit.NoErr(t, err)
		testkit.Check(t, strings.Contains(string(text), fmt.Sprintf(want, layout)), "%s does not say %d", page, layout)
	}
}

func TestANewerLayoutIsLeftAlone(t *testing.T) {
	ctx := context.Background()
	onEach(t, func(t *testing.T, s *Store) {
		newer := NewOfLayout(t, s.rdb, layout+1)
		draw := request(1)
		draw.Draw, draw.Waiting = true, draw.Want
		for form, first := range map[string]lease.Request{"long": request(1), "short": draw} {
			// given a bucket that a newer release has stored, or has only called
			for _, begins := range []*Store{newer, s} {
				granted(t, begins, form, first)
				second := first
				second.Holder = "newer"
				granted(t, newer, form, second)
				before := contents(s)
				// when this release calls, then it is told so, and writes nothing
				for _, r := range []lease.Request{request(2), draw} {
					_, err := exchange(s, form, r)
					testkit.Check(t, errors.Is(err, errNewer) && errors.Is(err, lease.ErrPermanent) &&
						errors.Is(err, lease.ErrRefused) && !protocol.NodeFailed(err) &&
						strings.Contains(err.Error(), "layout is 3, this release reads up to 2"), "%v", err)
				}
				_, err := s.Configure(ctx, form, lease.OpSet, request(1).Config)
				testkit.Check(t, errors.Is(err, errNewer), "set: %v", err)
				_, err = s.Look(ctx, form)
				testkit.Check(t, errors.Is(err, errNewer), "look: %v", err)
				scanned := 0
				scan := walk{Store: s, of: form, count: scanCount, each: func(r reading) {
					testkit.Check(t, r.holder != "" || errors.Is(r.err, errNewer), "scan: %v", r.err)
					scanned++
				}}
				testkit.NoErr(t, scan.all(ctx))
				testkit.Check(t, scanned > 0 && contents(s) == before, "%d were read, written to:\n%s\n%s", scanned,
					before, contents(s))
				s.rdb.FlushAll(ctx)
			}
		}
	})
}
