package ui

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// knob is a setting of the page. A link has a number in the knob's unit, or one of the knob's choices.
type knob struct {
	Name, Label, Unit, Hint string
	Default                 string    // "" is the default of the library
	Steps                   []float64 // steps of the slider; the text field also takes other numbers
	Whole                   bool
	Choices                 []choice
	paths                   []string // paths of the scenario's fields that the knob sets
}

type choice struct{ Value, Text string }

type section struct {
	Title string
	Knobs []knob
}

// sections has all knobs, in the order of the page.
var sections = []section{
	{"The limit", []knob{
		{Name: "processes", Label: "Processes", Unit: "processes", Default: "12", Steps: steps(1, 1000), Whole: true,
			Hint: "that share one limit", paths: []string{"groups[0].count", "groups"}},
		{Name: "rate", Label: "Rate", Unit: "requests/s", Default: "5000", Steps: steps(10, 200_000), Whole: true,
			Hint: "that the limit allows to all processes together", paths: []string{"limits[0]", "limits[0].tokens"}},
		{Name: "burst", Label: "Burst", Unit: "requests", Default: "5000", Steps: steps(10, 1_000_000), Whole: true,
			Hint: "that may come at once after a pause", paths: []string{"limits[0].burst"}},
	}},
	{"The load", []knob{
		{Name: "load", Label: "Load", Unit: "× the limit", Default: "1.1", Steps: []float64{0.1, 0.2, 0.3, 0.4, 0.5,
			0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5},
			Hint: "requests that arrive; above 1, some must be rejected", paths: []string{"workload.load"}},
		{Name: "shape", Label: "Shape", Default: sim.Poisson, Hint: "how requests arrive", paths: []string{"workload"},
			Choices: []choice{
				{sim.Poisson, "at random (Poisson)"}, {sim.Constant, "evenly"}, {"onoff", "on and off"},
				{sim.Sync, "all processes at the same moments"}, {sim.Flash, "a crowd in the middle"}}},
	}},
	{"The policy of the leases", []knob{
		{Name: "target_ms", Label: "Target", Unit: "ms", Steps: steps(1, 2000),
			Hint:  "length of a lease; longer leases need fewer calls. Empty: the default",
			paths: []string{"policy.target", "policy"}},
		{Name: "ttl_ms", Label: "TTL", Unit: "ms", Steps: steps(200, 60_000),
			Hint: "after which a lease ends unless renewed. Empty: 4 × Target", paths: []string{"policy.ttl"}},
		{Name: "fallback", Label: "Fallback", Default: "local_share", Hint: "while Redis does not answer",
			paths: []string{"policy.fallback"}, Choices: []choice{
				{"local_share", "each process admits its share"}, {"deny", "deny: the limit holds"},
				{"allow_all", "admit everything"}}},
	}},
	{"Redis", []knob{
		{Name: "round_trip_ms", Label: "Round trip", Unit: "ms", Default: "0.8", Steps: steps(0.1, 100),
			Hint:  "of a call, in the median; 1 in 100 takes 4.4 times as long. A call fails after 100 ms",
			paths: []string{"network.round_trip"}},
		{Name: "fault", Label: "Fault", Default: noFault, Hint: "after a third of the simulated time",
			paths: []string{"redis.faults[0].kind"}, Choices: []choice{
				{noFault, "none"}, {sim.FaultHang, "Redis hangs"}, {sim.FaultOutage, "Redis refuses connections"},
				{sim.FaultFailover, "Redis fails over and loses the last 300 ms"},
				{sim.FaultRestartEmpty, "Redis restarts empty"},
				{"partition", "half of the processes are cut off from Redis"},
				{"crash", "a process is killed"}, {"pause", "a process stops and resumes"}}},
		{Name: "fault_s", Label: "Fault lasts", Unit: "s", Default: "3", Steps: steps(0.1, 20),
			Hint:  "a run lasts at least three times as long",
			paths: []string{"redis.faults[0]", "network.partitions[0]", "groups[0].restarts", "groups[0].pauses"}},
	}},
	{"The simulation", []knob{
		{Name: "seconds", Label: "Simulated time", Unit: "s", Default: "30", Steps: steps(1, 600),
			Hint: "of each run; a longer run is slower and more precise", paths: []string{"duration", "warmup"}},
	}},
}

const noFault = "none"

// steps returns round numbers from least to most. If least is 1 or above, all steps are whole numbers.
func steps(least, most float64) (all []float64) {
	for exponent := -1; exponent < 7; exponent++ {
		for _, x := range []float64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			x = math.Round(x*math.Pow10(exponent+3)) / 1e4
			if x >= least && x <= most && (least < 1 || x == math.Trunc(x)) {
				all = append(all, x)
			}
		}
	}
	return all
}

// wrong describes an invalid value of a knob, with the allowed values in words.
type wrong struct {
	Knob string `json:"knob"`
	Text string `json:"text"`
}

// settings has the values of the knobs in a link. The keys of each map are names of knobs.
type settings struct {
	text    map[string]string
	words   map[string]string // the page's words for the value of a knob with choices
	numbers map[string]float64
	faults  []wrong
}

// read reads the query of a link. A missing knob gets its default.
func read(query url.Values) *settings {
	s := &settings{text: map[string]string{}, words: map[string]string{}, numbers: map[string]float64{}}
	for _, section := range sections {
		for _, k := range section.Knobs {
			text := strings.TrimSpace(query.Get(k.Name))
			if text == "" {
				text = k.Default
			}
			s.text[k.Name] = text
			if fault := s.check(k, text); fault != "" {
				s.faults = append(s.faults, wrong{k.Name, "is " + strconv.Quote(text) + ", must be " + fault})
			}
		}
	}
	for name := range query {
		if _, known := s.text[name]; !known {
			s.faults = append(s.faults, wrong{"",
				fmt.Sprintf("The link has a setting %.40q, which this page lacks.", name)})
		}
	}
	return s
}

var thousands = regexp.MustCompile(`^[1-9]\d{0,2}(,\d{3})+$`)

// check stores text as the value of k. For an invalid text, check returns the allowed values.
func (s *settings) check(k knob, text string) (allowed string) {
	if k.Choices != nil {
		var values []string
		for _, c := range k.Choices {
			if c.Value == text {
				s.words[k.Name] = c.Text
				return ""
			}
			values = append(values, c.Value)
		}
		return "one of " + strings.Join(values, ", ")
	}
	if text == "" {
		return ""
	}
	if thousands.MatchString(text) { // the page writes its own numbers with commas
		text = strings.ReplaceAll(text, ",", "")
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(x > 0 && x <= 1e15):
		return fmt.Sprintf("a number above 0, in %s", k.Unit)
	case k.Whole && x != math.Trunc(x):
		return "a whole number"
	}
	s.numbers[k.Name] = x
	return ""
}

// scenario returns the scenario of s at a load. In each run the fleet settles in a warm-up, at most as long as
// the counted seconds that follow. withFault includes the fault.
func (s *settings) scenario(seconds, load float64, withFault bool) sim.Scenario {
	in := func(unit time.Duration, x float64) time.Duration {
		return time.Duration(math.Round(min(x*float64(unit), float64(math.MaxInt64/2))))
	}
	trip := in(time.Millisecond, s.numbers["round_trip_ms"])
	sc := sim.Scenario{
		Name:     "from-the-page",
		Duration: in(time.Second, seconds), Reps: fullReps, Seed: 1,
		Limits: []lease.Limit{{Tokens: int64(s.numbers["rate"]), Per: time.Second, Burst: int64(s.numbers["burst"])}},
		Policy: lease.Policy{
			Target: in(time.Millisecond, s.numbers["target_ms"]), TTL: in(time.Millisecond, s.numbers["ttl_ms"]),
			Fallback: map[string]lease.Fallback{"deny": lease.FallbackDeny,
				"allow_all": lease.FallbackAllowAll}[s.text["fallback"]],
		},
		Groups:   []sim.Group{{Name: "web", Count: int(s.numbers["processes"])}},
		Workload: sim.Workload{Kind: s.text["shape"], Load: load},
	}
	sc.Network.RoundTrip = sim.DurationDist{Dist: sim.Dist{
		Kind: sim.DistLognormal, P: float64(trip), Q: float64(trip * 35 / 8)}}
	warmup := math.Ceil(min(sc.Defaults().Settling().Seconds(), max(seconds, s.seconds())))
	sc.Warmup, sc.Duration = in(time.Second, warmup), in(time.Second, warmup+seconds)
	kind := s.text["fault"]
	if !withFault || kind == noFault {
		return sc
	}
	at := in(time.Second, math.Round(10*(warmup+seconds/3))/10)
	lasts := in(time.Second, s.numbers["fault_s"])
	switch kind {
	case "partition":
		sc.Network.Partitions = append(sc.Network.Partitions, scenario.Partition{At: at, For: lasts, Part: 0.5})
	case "crash":
		sc.Groups[0].Restarts = sim.Stops{At: at, For: sim.Constantly(lasts)}
	case "pause":
		sc.Groups[0].Pauses = sim.Stops{At: at, For: sim.Constantly(lasts)}
	default:
		fault := sim.RedisFault{Kind: kind, At: at, For: lasts}
		if kind == sim.FaultFailover {
			fault.Lost = 300 * time.Millisecond
		}
		sc.Redis.Faults = []sim.RedisFault{fault}
	}
	return sc
}

func (s *settings) validate() []wrong {
	if len(s.faults) > 0 {
		return s.faults
	}
	var faults []wrong
	for _, v := range violation.All(s.whole().Validate()) {
		faults = append(faults, wrong{knobOf(v.Path), violation.Text(v)})
	}
	return faults
}

// whole returns the scenario with the fault, the load and the simulated time of the page.
func (s *settings) whole() sim.Scenario { return s.scenario(s.seconds(), s.numbers["load"], true) }

// seconds returns the counted time of a run, at least three times as long as the fault.
func (s *settings) seconds() float64 {
	seconds := s.numbers["seconds"]
	if s.text["fault"] != noFault {
		seconds = max(seconds, 3*s.numbers["fault_s"])
	}
	return seconds
}

// knobOf returns the knob that sets the field at path: the knob with the longest matching prefix in paths.
func knobOf(path string) (name string) {
	longest := 0
	for _, section := range sections {
		for _, k := range section.Knobs {
			for _, p := range k.paths {
				if len(p) > longest && strings.HasPrefix(path, p) {
					name, longest = k.Name, len(p)
				}
			}
		}
	}
	return name
}
