package render

import (
	"github.com/yuzhi-go/yuzhi/sim"
)

// kind is how a figure is written.
type kind int

const (
	amount kind = iota // tokens, or something per second
	part               // of one, written in percent
	index              // from 0 to 1, written as it is
	millis
)

// about says of a figure, by its JSON key, how it is written and what it is.
var about = map[string]struct {
	kind kind
	text string
}{
	"offered":             {amount, "tokens asked for"},
	"admitted":            {amount, "tokens admitted"},
	"central_admitted":    {amount, "tokens that one central bucket would have admitted"},
	"admitted_vs_central": {part, "admitted, of what one central bucket would have"},
	"bound_exceeded_by":   {amount, "tokens above the bound in the worst of all windows"},
	"false_reject_ratio":  {part, "rejected, though one central bucket would have admitted it"},
	"swapped_ratio":       {part, "rejected, but another request was admitted in its place"},
	"calls_per_s":         {amount, "lease calls per second of the whole fleet"},
	"round_trips_per_s":   {amount, "round trips to Redis per second"},
	"redis_cpu":           {part, "of one core, the busiest shard"},
	"jain":                {index, "Jain's index of admitted over max-min share; 1 is fair"},
	"worst_share":         {part, "of its max-min share, the process with the least"},
	"stranded":            {amount, "tokens held by processes, mean over time"},
	"burnt":               {amount, "tokens leased and lost"},
	"degraded":            {amount, "tokens admitted without a lease, by the fallback"},
	"wait_ms_p50":         {millis, "from asking to the answer, half of the admitted"},
	"wait_ms_p99":         {millis, "the same, 99 % of the admitted"},
	"wait_ms_max":         {millis, "the same, all of the admitted"},
}

// About is what the figure with that JSON key is, in a few words; "" for a key that no figure has.
func About(key string) string { return about[key].text }

// Value writes a value of the figure with that JSON key, with its unit.
func Value(key string, x float64) string {
	switch about[key].kind {
	case part:
		return Percent(x)
	case millis:
		return Number(x) + " ms"
	}
	return Number(x)
}

// Figure writes the figure with that JSON key as its mean and the half width of its interval, with its unit.
func Figure(key string, f sim.Figure) string {
	switch about[key].kind {
	case part:
		return PercentInterval(f)
	case millis:
		return Interval(f) + " ms"
	}
	return Interval(f)
}
