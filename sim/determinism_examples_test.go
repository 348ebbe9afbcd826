package sim_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

func TestParallelDoesNotChangeTheReportOfAnExample(t *testing.T) {
	examples := scenfile.Examples()
	if testkit.Slowdown > 1 {
		examples = examples[3:4] // the race detector sees in one what it sees in all
	}
	for _, e := range examples {
		s, err := scenfile.Load("example:" + e.Name)
		if err != nil {
			t.Fatal(err)
		}
		s.Reps = 2
		var first []byte
		for _, parallel := range []int{1, 2, 8} {
			r, err := sim.Runner{Parallel: parallel}.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			r.Machine = sim.Machine{}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = text
			} else if !bytes.Equal(first, text) {
				t.Errorf("%s, parallel %d: the report is\n%s\nand with 1\n%s", e.Name, parallel, text, first)
			}
		}
	}
}
