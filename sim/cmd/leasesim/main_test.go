package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestScriptsArePrintedByteForByte(t *testing.T) {
	for name, source := range redisbucket.Scripts() {
		e := leasesim(t, "scripts "+name).ends(0).says()
		testkit.Check(t, e.stdout == source, "%s: %d bytes, want %d", name, len(e.stdout), len(source))
	}
}

func TestInitWritesAScenarioThatRuns(t *testing.T) {
	template := leasesim(t, "init").ends(0).stdout
	e := pretend(t, report(), nil, "run -f "+fileOf(t, template)).ends(0)
	testkit.Check(t, len(e.ran) == 1, "%d runs", len(e.ran))
	sale := leasesim(t, "init flash-sale").ends(0).shows("flash-sale")
	testkit.Check(t, sale.stdout != template, "%s", sale.stdout)
	leasesim(t, "init --list").ends(0).shows("flash-sale ")
}

func TestTheCommandLineToRepeatHasTheSeed(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run", "leasesim run --seed 3"},
		{"run --seed 3 --out html", "leasesim run --seed 3 --out html"},
		{"run --seed=3 --reps 2", "leasesim run --seed=3 --reps 2"},
		{"run --set limits=[1/s]", "leasesim run --set 'limits=[1/s]' --seed 3"},
		{"run --set name=it's", `leasesim run --set 'name=it'\''s' --seed 3`},
	} {
		p := program{args: strings.Fields(c.args)}
		got := p.commandLine(3)
		testkit.Check(t, got == c.want, "%s: %q, want %q", c.args, got, c.want)
	}
}

func TestEveryCommandExplainsItselfWithExamplesThatParse(t *testing.T) {
	root := (&program{}).root()
	commands := append([]*cobra.Command{root}, root.Commands()...)
	testkit.Must(t, len(commands) >= 6, "%d commands", len(commands))
	names := map[string]bool{}
	for _, c := range commands {
		testkit.Check(t, !names[c.Name()], "%s is there twice", c.CommandPath())
		names[c.Name()] = true
	}
	for _, c := range commands {
		testkit.Check(t, c.Short != "" && len(c.Long) >= 100 && c.Example != "",
			"%s does not explain itself", c.CommandPath())
		for line := range strings.SplitSeq(c.Long+"\n"+c.UsageString(), "\n") {
			n := utf8.RuneCountInString(line)
			testkit.Check(t, n <= helpMax, "%s: a line of %d characters: %s", c.CommandPath(), n, line)
		}
		// And no line within a paragraph of its page is longer: its last words would stand alone.
		var page strings.Builder
		if pages.Lookup(c.Name()+".txt") != nil {
			testkit.NoErr(t, pages.ExecuteTemplate(&page, c.Name()+".txt", nil))
		}
		lines := strings.Split(page.String()+"\n", "\n")
		for i, line := range lines {
			testkit.Check(t, utf8.RuneCountInString(line) <= helpMax || lines[i+1] == "", "%s: a line is broken: %s",
				c.CommandPath(), line)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(c.Example, "\\\n", ""), "\n") {
			words, ok := strings.CutPrefix(line, "  leasesim ")
			if !ok {
				t.Errorf("%s: the example %q is no command line", c.CommandPath(), line)
				continue
			}
			words, _, _ = strings.Cut(words, " >")
			// Each flag that an example uses must be there: a fresh tree parses it.
			found, rest, err := (&program{}).root().Find(splitWords(words))
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			testkit.Check(t, err == nil, "%s: the example %q: %v", c.CommandPath(), line, err)
		}
	}
}

func TestTheHelpNamesEveryFigureAndEveryRival(t *testing.T) {
	for _, line := range []string{"", "--help", "help", "live --help", "help live"} {
		leasesim(t, line).ends(0).shows("leasesim live --redis")
	}
	help := leasesim(t, "compare --help").ends(0).shows("--threshold", "Exit status", "bound_exceeded_by",
		"-f, --file", "--set",
		"--seed uint", "(default 1)", "--reps", "--parallel", "--duration", "--out",
		"table, json, html").stdout
	for _, name := range append(search.FigureNames(), rival.Names()...) {
		testkit.Check(t, strings.Contains(help, "\n  "+name+" "), "the help does not name %s", name)
	}
}

// wrong is command lines, and what is said of them.
const wrong = `
live --set groups[0].count=257 => groups[0].count is 257, must be 1 to 256
live --redis redis+sentinel://h:1 => --redis: a Sentinel URL needs the name of the master
scripts => accepts 1 arg(s), received 0
scripts other => invalid argument "other" for "leasesim scripts"
live --duration 5 => must be a duration like "30s"
live --duration 50ms => duration is 50ms, must be 100ms
live --redis '' => --redis is empty; leave it out, or give it a value
compare --rivals '' => --rivals is empty
run --reps ten => invalid argument "ten" for "--reps" flag: must be an integer
live --out xml => --out is "xml", must be one of table, json
live --frobnicate => unknown flag: --frobnicate
live --set limits=[100000000/s] --duration 1m => must be at most 100000000, because every request is recorded
inspect --redis h:1 => accepts 1 arg(s), received 0
inspect a b --redis h:1 => accepts 1 arg(s), received 2
inspect a => --redis is missing
inspect a --redis h => --redis: "h" is neither host:port nor a URL
inspect a --redis h:1 --out csv => --out is "csv", must be table or json
inspect a --redis h:1 --prefix { => --prefix: Prefix is "{"
top surplus => unknown command
top => --redis is missing
top --redis h:1 --sort speed => By is "speed", Count 20, Interval 2s, KeysMax 1000000; By must be one of
top --redis h:1 --count -1 => Count -1, Interval 2s, KeysMax 1000000; By must be one of
ui --port 65536 => invalid argument "65536" for "--port" flag
simulate => unknown command "simulate" for "leasesim"\n
swep => unknown command "swep" for "leasesim"\n\nDid you mean this?\n
run fleet.yaml => unknown command "fleet.yaml" for "leasesim run"
run --seed 0 => leasesim: seed: is 0, which means its default here: 1
run --reps 0 => reps: is 0, which means its default here: 10
run --reps -1 => reps is -1, must be 1 to 10000
run --parallel -1 => --parallel is -1
run --duration 0s => duration: is 0s, which means its default here: 30s
run --reps 0 --out xml => leasesim: --out is "xml"
run --threshold 'jain > high'
  => leasesim: --threshold: invalid threshold "jain > high": "high" is not a number
run -f @dir => --file: 
compare --rivals sliding_log,sliding_log => rivals[1] is "sliding_log", which is rivals[0] too
run -f nowhere.yaml => leasesim: file nowhere.yaml does not exist
run -f /dev/zero => the file has more than 1048576 bytes
run -f example:nothing => there is no example "nothing"
run -f @unit => @unit:9:9: warmup: 
run -f @twice => @twice:9:1: 
run --set policy.tarjet=1s => leasesim: policy.tarjet: 
compare --rivals central,tortoise => rivals[1] is "tortoise", must be one of central, 
run -f @rival => @rival:9:19: rivals[1]: is "centrl", must be one of central, 
replay => leasesim: replay needs a --trace
replay --trace nowhere.csv => leasesim: --trace: stat nowhere.csv
run -f example:priorities --set workload.load=5
  => --set: workload has no effect: each group has its own
sweep -f example:priorities --vary workload.load=1,2 => --vary: workload has no effect
init checkout => init takes the name of one example, not ["checkout"]
init a b => init takes the name of one example
sweep => leasesim: --vary: invalid axis: none is given
sweep --vary policy.target => --vary: invalid axis "policy.target": must be PATH=VALUES
sweep --vary policy.tarjet=1ms => invalid axis policy.tarjet=1ms: policy.tarjet: 
sweep --vary reps=1,2 => use --reps
sweep --vary policy.target=10ms --threshold 'false_reject_ratio <= 0.5' => 0.5 is ambiguous: write 0.5% or 50%
plan --false-rejects 0.5 => "0.5": has no unit: a ratio is in percent, like 0.5%
plan --confidence 0.95 => "0.95": has no unit
plan --false-rejects half => "half": has no unit: a ratio is in percent, like 0.5%
plan --redis-calls 0 => --redis-calls is 0, must be above 0 and finite
plan --redis-calls Inf => --redis-calls is +Inf, must be above 0 and finite
plan --wait-p99 -1s => --wait-p99 is -1s, must be at least 0
plan --confidence 100% => --confidence is 100%, must be 50% to 99.99%
plan --overcommit-max -1 => --overcommit-max is -1, must be at least 0
plan --stress-must-hold=weather
  => unknown stress "weather", must be one of ["clocks" "outage" "failover" "crash" "lost_bucket" "processes" "load_1"
plan --set policy.target=9h => policy
compare --redis localhost:1 => --redis needs --live
compare --live --rivals fixed_window => --rivals cannot be combined with --live
compare --live --set 'limits=[9 each 1h]'
  => live cannot run this scenario: limits is [9 each 1h], must be one limit, and not a calendar
`

func TestWrongUsageIsStatus2SaysWhyAndRunsNothing(t *testing.T) {
	files := map[string]string{
		"@unit":  fileOf(t, small+"warmup: 5\n"),
		"@twice": fileOf(t, small+"name: again\n"),
		"@rival": fileOf(t, small+"rivals: [central, centrl]\n"),
		"@dir":   t.TempDir(),
	}
	all := strings.ReplaceAll(strings.TrimSpace(wrong), "\n  => ", " => ")
	for entry := range strings.SplitSeq(all, "\n") {
		line, want, _ := strings.Cut(strings.ReplaceAll(entry, `\n`, "\n"), " => ")
		for name, file := range files {
			line, want = strings.ReplaceAll(line, name, file), strings.ReplaceAll(want, name, file)
		}
		e := pretend(t, report(), nil, line).ends(exitUsage).says(want).shows()
		testkit.Check(t, len(e.ran) == 0 && !strings.Contains(e.stderr, "leasesim: leasesim"),
			"%s: %d runs, %s", e.line, len(e.ran), e.stderr)
		// A scenario's errors begin with its file, for editors to jump to.
		if strings.HasPrefix(line, "run ") && strings.HasPrefix(want, files["@unit"]) {
			testkit.Check(t, strings.HasPrefix(e.stderr, want), "%s: %q", e.line, e.stderr)
		}
	}
}
