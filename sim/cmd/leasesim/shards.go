package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// This file is how looking commands show a key with hybrid.Policy.Shards: as one key, with the sums
// of its shards. No bucket says how many shards its key has, so what is shown is those that exist.

// shardOf splits a stored key as hybrid makes it: "@NAME#3:KEY" is shard 3 of "@NAME:KEY", and
// "@#3:KEY" that of "KEY". Any other stored key is its own shard 0.
func shardOf(stored string) (of string, shard int) {
	head, rest, ok := strings.Cut(stored, ":")
	name, number, marked := strings.Cut(head, "#")
	n, err := strconv.Atoi(number)
	if !ok || !marked || !strings.HasPrefix(name, "@") || err != nil || n < 1 || n >= lease.ShardsMax {
		return stored, 0
	}
	if name == "@" && !strings.HasPrefix(rest, "@") {
		return rest, n
	}
	return name + ":" + rest, n
}

// shardKey is the stored key of one shard of the key whose shard 0 is stored as of.
func shardKey(of string, shard int) string {
	if shard == 0 {
		return of
	}
	name, key := "@", of
	if head, rest, ok := strings.Cut(of, ":"); ok && strings.HasPrefix(of, "@") {
		name, key = head, rest
	}
	prefix := name + "#" + strconv.Itoa(shard) + ":"
	if len(prefix)+len(key) > lease.KeyMax {
		key = lease.HashKey(key)
	}
	return prefix + key
}

// inspectShards is what there is to show of a key with shards; nil where it has none but the first.
func inspectShards(ctx context.Context, store *redisbucket.Store, key string) (*bucket, error) {
	if _, shard := shardOf(key); shard > 0 {
		return nil, nil // one shard is a bucket like any other
	}
	var keys []string
	for i := range lease.ShardsMax {
		keys = append(keys, shardKey(key, i))
	}
	views, err := store.Views(ctx, keys)
	if err != nil {
		return nil, err
	}
	var shards []*bucket
	for i, v := range views {
		if v.Exists {
			shards = append(shards, inspected(keys[i], v))
		}
	}
	if len(shards) == 0 || len(shards) == 1 && shards[0].Key == key {
		return nil, nil
	}
	return summed(key, shards), nil
}

// summed is the sum of the shards. What cannot be summed is that of the first, and the active
// weight is the largest: a process is a holder of several.
func summed(key string, shards []*bucket) *bucket {
	sum := *shards[0]
	sum.Key, sum.Shards, sum.Limits = key, shards, nil
	for k, l := range shards[0].Limits {
		for _, s := range shards[1:] {
			if k < len(s.Limits) && s.Limits[k].Limit == l.Limit {
				l.NextMs = min(l.NextMs, s.Limits[k].NextMs)
			}
			if k < len(s.Limits) {
				l.Level, l.Burst = l.Level+s.Limits[k].Level, l.Burst+s.Limits[k].Burst
			}
		}
		sum.Limits = append(sum.Limits, l)
	}
	for _, s := range shards[1:] {
		sum.Ledger, sum.ActiveWeight = sum.Ledger+s.Ledger, max(sum.ActiveWeight, s.ActiveWeight)
		sum.Spent, sum.Denied, sum.Calls = sum.Spent+s.Spent, sum.Denied+s.Denied, sum.Calls+s.Calls
		sum.Overcommit, sum.Contended = sum.Overcommit+s.Overcommit, sum.Contended || s.Contended
		sum.CalledMs, sum.ExpiryMs = min(sum.CalledMs, s.CalledMs), max(sum.ExpiryMs, s.ExpiryMs)
		sum.FrozenMs = max(sum.FrozenMs, s.FrozenMs)
	}
	return &sum
}

// shardsText lists the shards for people.
func (b *bucket) shardsText() string {
	number := func(n int64) string { return view.Number(float64(n)) }
	table := view.Table{Columns: strings.Split("shard,>level,>burst,>level %,>leased,>active weight,>spent,>denied,>calls", ",")}
	for _, s := range b.Shards {
		l := s.Limits[0]
		table.Add(shownKey(s.Key, 40), number(l.Level), number(l.Burst), percent(l.Level, l.Burst), number(s.Ledger),
			number(s.ActiveWeight), number(s.Spent), number(s.Denied), number(s.Calls))
	}
	return fmt.Sprintf("The sum of the %d shards that exist, of the limits above each. Inspect one by its key for its "+
		"holders.\n\n", len(b.Shards)) + table.String()
}
