package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// rates keeps the last two readings of every key's counters. A key costs about 200 bytes and its
// name.
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

// sorts are what the rows may be sorted by, in the order of perS.
var sorts = []string{"spent", "denied", "calls", "waiting"}

// ranked is a key that is shown: one stored key, or all shards of one, and their sum.
type ranked struct {
	key    string
	stored []string
	rated
}

// top are the keys with the most of what is sorted by.
func (r *rates) top(by string, count int) []ranked {
	sharded := make(map[string]*ranked) // what has shards beside the first
	for key := range r.keys {
		of, shard := shardOf(key)
		if shard > 0 && sharded[of] == nil {
			sharded[of] = &ranked{key: of}
			if first := r.keys[of]; first != nil {
				sharded[of].add(of, first)
			}
		}
		if shard > 0 {
			sharded[of].add(key, r.keys[key])
		}
	}
	names := slices.Collect(maps.Keys(sharded))
	for key := range r.keys {
		if of, _ := shardOf(key); sharded[of] == nil {
			names = append(names, key)
		}
	}
	of := func(key string) *rated {
		if s := sharded[key]; s != nil {
			return &s.rated
		}
		return r.keys[key]
	}
	i := slices.Index(sorts, by)
	value := func(key string) float64 {
		if k := of(key); i < len(k.perS) {
			return k.perS[i]
		}
		return float64(of(key).waiting)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a, b))
	})
	var all []ranked
	for _, key := range names[:min(count, len(names))] {
		if s := sharded[key]; s != nil {
			slices.Sort(s.stored)
			all = append(all, *s)
		} else {
			all = append(all, ranked{key, []string{key}, *r.keys[key]})
		}
	}
	return all
}

// add takes in one shard. Its holders are those of others too, so the sum has those of the shard
// with the most. What is new has no rates, and counts where all are.
func (s *ranked) add(stored string, k *rated) {
	s.isNew = k.isNew && (s.isNew || len(s.stored) == 0)
	s.stored = append(s.stored, stored)
	for i := range k.perS {
		s.perS[i] += k.perS[i]
	}
	s.holders, s.waiting = max(s.holders, k.holders), s.waiting+k.waiting
}
