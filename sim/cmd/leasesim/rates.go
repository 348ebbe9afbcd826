package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// rates keeps the last two readings of every key's counters. A key costs about 200 bytes and its name.
type rates struct {
	keysMax int
	keys    map[string]*rated
	pass    int
	foreign int // readings of this pass that were no buckets of this version
	crowded int // buckets of this pass that keysMax left out
}

// rated is one key: its last reading, and what that says beside the one before.
type rated struct {
	at      time.Time
	epoch   int64
	counts  [3]int64 // spent, denied, calls
	perS    [3]float64
	isNew   bool // there is one reading only
	pass    int  // of the last reading
	holders int64
	waiting int64
	summed  int // the pass of holders and waiting
}

// counterEnd is where a bucket's counters begin anew.
const counterEnd = 1 << 52

// add takes in a reading.
func (r *rates) add(x redisbucket.Reading) {
	if x.Err != nil {
		r.foreign++
		return
	}
	k := r.keys[x.Key]
	if k == nil {
		if len(r.keys) >= r.keysMax {
			if x.Holder == "" {
				r.crowded++
			}
			return
		}
		k = &rated{}
		r.keys[x.Key] = k
	}
	if k.summed != r.pass {
		k.holders, k.waiting, k.summed = 0, 0, r.pass
	}
	switch {
	case x.Holder != "":
		k.holders++
		k.waiting += x.Waiting
	case k.pass != r.pass: // a scan may tell it twice
		k.count(x)
		k.pass = r.pass
	}
}

// count sets the rates. Another epoch is another bucket, or one that has lost calls.
func (k *rated) count(x redisbucket.Reading) {
	counts := [3]int64{x.Spent, x.Denied, x.Counter}
	seconds := x.At.Sub(k.at).Seconds()
	k.isNew = k.pass == 0 || x.Epoch != k.epoch || x.Counter < k.counts[2] || seconds <= 0
	for i := range counts {
		k.perS[i] = 0
		if !k.isNew {
			k.perS[i] = float64((counts[i]-k.counts[i]+counterEnd)%counterEnd) / seconds
		}
	}
	k.at, k.epoch, k.counts = x.At, x.Epoch, counts
}

// begin starts a pass over all keys, and end ends it: what was not there any more is forgotten.
func (r *rates) begin() { r.pass, r.foreign, r.crowded = r.pass+1, 0, 0 }

func (r *rates) end() {
	maps.DeleteFunc(r.keys, func(_ string, k *rated) bool { return k.pass != r.pass })
}

// sorts names the sort orders of rows, in the order of perS.
var sorts = []string{"spent", "denied", "calls", "waiting"}

// ranked is a key that is shown.
type ranked struct {
	key string
	*rated
}

// top are the keys with the most of what is sorted by.
func (r *rates) top(by string, count int) []ranked {
	i := slices.Index(sorts, by)
	value := func(k ranked) float64 {
		if i < len(k.perS) {
			return k.perS[i]
		}
		return float64(k.waiting)
	}
	all := make([]ranked, 0, len(r.keys))
	for key, k := range r.keys {
		all = append(all, ranked{key, k})
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a.key, b.key))
	})
	return all[:min(count, len(all))]
}
