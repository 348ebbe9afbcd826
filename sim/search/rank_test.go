package search

import (
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestAThinnedListKeepsTheChosenOne, and its ends and its order.
func TestAThinnedListKeepsTheChosenOne(t *testing.T) {
	for length := range 40 {
		list := make([]*trial, length)
		for i := range list {
			list[i] = &trial{changes: i}
		}
		for _, chosen := range append(list, nil) {
			const most = 8
			got := spacedWith(list, most, chosen)
			sorted := slices.IsSortedFunc(got, func(a, b *trial) int { return a.changes - b.changes })
			ends := length == 0 || got[0] == list[0] && got[len(got)-1] == list[length-1]
			kept := chosen == nil || slices.Contains(got, chosen)
			testkit.Check(t, len(got) == min(length, most) && sorted && ends && kept, "of %d with %v: %v", length, chosen, got)
			testkit.Check(t, len(slices.Compact(got)) == min(length, most), "of %d one is twice", length)
		}
	}
}
