package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// passes are rates after these passes, which are a second apart.
func passes(keysMax int, all ...[]redisbucket.Reading) *rates {
	r := &rates{keysMax: keysMax, keys: map[string]*rated{}}
	for i, readings := range all {
		r.begin()
		for _, x := range readings {
			x.At = time.Unix(int64(i), 0)
			r.add(x)
		}
		r.end()
	}
	return r
}

func TestRatesAreWhatTheLastTwoReadingsSay(t *testing.T) {
	type counts = redisbucket.Reading
	bad := fmt.Errorf("WRONGTYPE")
	r := passes(100, []counts{
		{Key: "a", Epoch: 1, Spent: 100, Denied: 5, Counter: 7},
		{Key: "gone", Epoch: 1, Spent: 1}, {Key: "gone", Holder: "h", Waiting: 3},
		{Key: "end", Epoch: 1, Spent: 1<<52 - 10, Denied: 1<<52 - 1, Counter: 5},
		{Key: "lost", Epoch: 1, Spent: 50, Counter: 10}, {Key: "behind", Epoch: 1, Spent: 50, Counter: 10},
		{Key: "a", Holder: "h", Waiting: 9}, {Key: "list", Err: bad},
	}, []counts{
		{Key: "a", Holder: "g", Waiting: 2},
		{Key: "a", Epoch: 1, Spent: 130, Denied: 6, Counter: 9},
		{Key: "a", Epoch: 1, Spent: 131, Denied: 6, Counter: 9}, // a scan may tell a key twice
		{Key: "a", Holder: "h", Waiting: 1},
		{Key: "end", Epoch: 1, Spent: 5, Denied: 3, Counter: 6},
		{Key: "lost", Epoch: 2, Spent: 60, Counter: 11}, {Key: "behind", Epoch: 1, Spent: 40, Counter: 9},
		{Key: "new", Epoch: 3, Spent: 1000}, {Key: "gone", Holder: "h", Waiting: 3},
		{Key: "list", Err: bad}, {Key: "text", Holder: "h", Err: bad},
	})
	for key, want := range map[string]rated{
		"a":      {perS: [3]float64{30, 1, 2}, holders: 2, waiting: 3},
		"end":    {perS: [3]float64{15, 4, 1}}, // a counter that begins anew
		"lost":   {isNew: true},                // another epoch
		"behind": {isNew: true},                // a replica that lacked calls was promoted
		"new":    {isNew: true},
	} {
		k := r.keys[key]
		testkit.Must(t, k != nil, "%s is missing", key)
		got := rated{perS: k.perS, isNew: k.isNew, holders: k.holders, waiting: k.waiting}
		testkit.Check(t, reflect.DeepEqual(got, want), "%s: %+v, want %+v", key, got, want)
	}
	testkit.Check(t, r.keys["gone"] == nil && len(r.keys) == 5 && r.foreign == 2, "%d keys, %d foreign",
		len(r.keys), r.foreign)
	// and the first are those with the most of what is asked for, then by their names
	for by, want := range map[string]string{"spent": "a end", "denied": "end a", "calls": "a end",
		"waiting": "a behind"} {
		var got []string
		for _, k := range r.top(by, 2) {
			got = append(got, k.key)
		}
		testkit.Check(t, slices.Equal(got, strings.Fields(want)), "by %s: %v, want %s", by, got, want)
	}
	testkit.Check(t, len(r.top("spent", 50)) == 5, "%v", r.top("spent", 50))
}

func TestTopRemembersABoundedNumberOfKeys(t *testing.T) {
	var all []redisbucket.Reading
	for i := range 30 {
		all = append(all, redisbucket.Reading{Key: fmt.Sprint(i), Epoch: 1},
			redisbucket.Reading{Key: fmt.Sprint(i), Holder: "h"})
	}
	r := passes(20, all, all)
	testkit.Check(t, len(r.keys) == 20 && r.crowded == 10, "%d keys, %d too many", len(r.keys), r.crowded)
}

func TestOddKeysAreShownOnOneLine(t *testing.T) {
	for key, want := range map[string]string{
		"": `""`, "user:17": "user:17", "日本": "日本", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`,
		strings.Repeat("x", 50): strings.Repeat("x", 39) + "…",
	} {
		got := shownKey(key, 40)
		testkit.Check(t, got == want, "%q is shown as %s, want %s", key, got, want)
	}
}
