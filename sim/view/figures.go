package view

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// unit is how a figure is written.
type unit int

const (
	amount unit = iota // tokens, or something per second; an index from 0 to 1
	part               // of one, written in percent
	millis
)

// about says of a figure, by its JSON key, how it is written and what it is.
var about = map[string]struct {
	unit unit
	text string
}{
	"offered":             {amount, "tokens asked for"},
	"admitted":            {amount, "tokens admitted"},
	"central_admitted":    {amount, "tokens that one central bucket would admit"},
	"admitted_vs_central": {part, "admitted, as a part of central_admitted"},
	"bound_exceeded_by":   {amount, "tokens above the bound in the worst window"},
	"false_reject_ratio":  {part, "wrongly rejected, of central_admitted"},
	"swapped_ratio":       {part, "another admitted instead, of central_admitted"},
	"calls_per_s":         {amount, "lease calls per second of the whole fleet"},
	"round_trips_per_s":   {amount, "round trips to Redis per second"},
	"redis_cpu":           {part, "of one core, the busiest shard"},
	"jain":                {amount, "Jain's index of the fair shares; 1 is fair"},
	"worst_share":         {part, "of its fair share, the process with the least"},
	"stranded":            {amount, "tokens held by processes, mean over time"},
	"burnt":               {amount, "tokens leased and lost"},
	"degraded":            {amount, "tokens admitted without a lease"},
	"wait_ms_p50":         {millis, "from asking to the answer, half of the admitted"},
	"wait_ms_p99":         {millis, "the same, 99 % of the admitted"},
	"wait_ms_max":         {millis, "the same, all of the admitted"},
}

// Bases says what the parts among the figures are parts of.
const Bases = "Wrongly rejected is what one central bucket would have admitted. Fair shares are " +
	"max-min shares of what the algorithm itself admitted, of the most popular key."

// About is what the figure with that JSON key is, in a few words; "" for a key that no figure has.
func About(key string) string { return about[key].text }

// Value writes a value of the figure with that JSON key, with its unit.
func Value(key string, x float64) string { return Figure(key, sim.Figure{Mean: x, Low: x, High: x}) }

// Figure writes the figure with that JSON key as its mean and the half width of its interval, with
// its unit.
func Figure(key string, f sim.Figure) string {
	switch about[key].unit {
	case part:
		return interval(f, 100) + " %"
	case millis:
		return Interval(f) + " ms"
	}
	return Interval(f)
}

// drawnIn is how a chart shows a figure: parts are drawn in percent. note says so in a sentence.
func drawnIn(key string) (scale float64, note string) {
	scale, note = 1, About(key)
	if about[key].unit == part {
		scale, note = 100, note+", in percent"
	}
	return scale, strings.ToUpper(note[:1]) + note[1:] + "."
}
