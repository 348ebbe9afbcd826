package threshold

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/sim"
)

// FuzzRule checks for any text that it is read or refused, never anything else; and for any rule that one which holds
// for intervals holds for the values in them.
//
//	go test -run '^$' -fuzz FuzzRule ./sim/threshold
func FuzzRule(f *testing.F) {
	for _, text := range []string{
		"bound_exceeded_by.worst == 0", "false_reject_ratio < 0.5% && calls_per_s <= 5e2", "jain > .999 || worst_share >= 95%",
		"rival.gcra.admitted.mean / -admitted * (2 - stranded) != 1", "((1 < 2) && (3 >= 2))", "1 < 2 < 3", "jain.", "rival..x", "((((", "1e", "%",
	} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		rule, err := Parse(text)
		if err != nil {
			if rule != nil || !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "column ") {
				t.Fatalf("%q: %v, %v", text, rule, err)
			}
			return
		}
		if rule.String() != text || utf8.ValidString(text) && strings.TrimSpace(text) == "" {
			t.Fatalf("%q was read as %q", text, rule)
		}
		random := rand.New(rand.NewPCG(seed, 0))
		wide := &sim.Report{Rivals: []sim.RivalReport{{Name: "gcra"}}}
		for _, figure := range everyFigure(wide) {
			figure.Mean, figure.Worst = random.Float64(), random.Float64()
			figure.Low = float64(random.IntN(4)-2) / 2
			figure.High = figure.Low + random.Float64()*float64(random.IntN(2))
		}
		err = rule.Check(wide)
		if err != nil && !errors.Is(err, ErrFailed) {
			t.Fatalf("%q: %v", text, err)
		}
		// .low and .high are the ends of the interval, which no longer are what they were in a part of it.
		if err != nil || strings.Contains(text, ".low") || strings.Contains(text, ".high") {
			return
		}
		narrow := &sim.Report{Rivals: []sim.RivalReport{{Name: "gcra"}}}
		wides := everyFigure(wide)
		for i, figure := range everyFigure(narrow) {
			*figure.Figure = *wides[i].Figure
			at := min(max(figure.Low+random.Float64()*(figure.High-figure.Low), figure.Low), figure.High)
			figure.Low, figure.High = at, at
		}
		if err := rule.Check(narrow); err != nil {
			t.Fatalf("%q holds for intervals, but not for values in them: %v\nwide %+v\nnarrow %+v", text, err, wide, narrow)
		}
	})
}

func everyFigure(r *sim.Report) []sim.Named {
	all := r.Figures.All()
	for i := range r.Rivals {
		all = append(all, r.Rivals[i].All()...)
	}
	return all
}

// TestRandomRules feeds FuzzRule's check with rules that are mostly well formed.
func TestRandomRulesThatHoldForIntervalsHoldForTheirValues(t *testing.T) {
	const seed = 1
	t.Logf("seed %d; go test -run RandomRules ./sim/threshold", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	held := 0
	for range 20000 {
		text := randomRule(random, 3)
		rule, err := Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		wide := &sim.Report{}
		for _, figure := range wide.Figures.All() {
			figure.Low = float64(random.IntN(9) - 4)
			figure.High = figure.Low + float64(random.IntN(3))
		}
		if rule.Check(wide) != nil {
			continue
		}
		held++
		for range 5 {
			narrow := *wide
			for _, figure := range narrow.Figures.All() {
				at := figure.Low + float64(random.IntN(int(figure.High-figure.Low)*2+1))/2
				figure.Low, figure.High = at, at
			}
			if err := rule.Check(&narrow); err != nil {
				t.Fatalf("%q holds for intervals, but not for values in them: %v", text, err)
			}
		}
	}
	if held < 1000 {
		t.Errorf("only %d of the rules held: too few to show anything", held)
	}
}

func randomRule(random *rand.Rand, depth int) string {
	pick := func(s ...string) string { return s[random.IntN(len(s))] }
	var sum func(depth int) string
	sum = func(depth int) string {
		switch {
		case depth == 0 || random.IntN(3) == 0:
			return pick("jain", "admitted", "calls_per_s", "burnt", "1", "2.5", "300%", "-stranded")
		case random.IntN(3) == 0:
			return "(" + sum(depth-1) + ")"
		}
		return sum(depth-1) + pick("+", " - ", "*", " / ") + sum(depth-1)
	}
	switch {
	case depth == 0 || random.IntN(2) == 0:
		return sum(depth) + pick("<", " <= ", ">", ">=", " == ", "!=") + sum(depth)
	case random.IntN(3) == 0:
		return "(" + randomRule(random, depth-1) + ")"
	}
	return randomRule(random, depth-1) + pick("&&", " || ") + randomRule(random, depth-1)
}
