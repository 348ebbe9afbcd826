package arrival

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// The requests of a seed are a promise, as package random's streams are: these are the first 10,000
// of each kind, and 10,000 draws of each distribution. A machine that rounds anything otherwise
// fails here.
func TestEveryMachineHasTheSameRequests(t *testing.T) {
	const n = 10_000
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(kinds())) {
		s := newSource(name, 12345)
		a := New(s)
		for i, now := 0, int64(0); i < n; i++ {
			now = a.Next(now)
			fmt.Fprintln(sum, now)
		}
	}
	for _, d := range []scenario.Dist{
		{P: 3}, {Kind: scenario.DistUniform, P: 1, Q: 7}, {Kind: scenario.DistNormal, P: 1e6, Q: 2e5},
		{Kind: scenario.DistExp, P: 1e6, Q: 0}, {Kind: scenario.DistLognormal, P: 5e5, Q: 2e6},
		{Kind: scenario.DistPareto, P: 1e6, Q: 1.5},
	} {
		r := random.New(1, 12)
		fmt.Fprintf(sum, "%x\n", d.Mean())
		for range n {
			fmt.Fprintf(sum, "%x\n", d.Draw(&r))
		}
	}
	for _, share := range Shares(n, 0.9) {
		fmt.Fprintf(sum, "%x\n", share)
	}
	const want = "b0475ea2708dd6cd80b9be11216f99af4bfd62cbcb92378444d40ba0be24bc1b"
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		t.Errorf("the hash is %s, want %s", got, want)
	}
}
