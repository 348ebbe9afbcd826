// Command evaluation compares yuzhi with other limiters for Go on a Redis server that evaluation starts, and
// prints Markdown tables.
//
//	go run -C internal/evaluation .
//	go run -C internal/evaluation . -quick
//
// All tables take about ten minutes, or one minute with -quick. -only selects tables. The command is a module
// of its own, because other modules must not depend on the compared limiters.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// evaluation is one run of the command, and implements testing.TB for package redistest.
type evaluation struct {
	testing.TB
	quick  bool
	rounds int
	span   time.Duration // length of one measurement
	pace   float64       // requests per second in the open loops

	cleanups []func()
	failed   atomic.Bool
}

// tables lists the tables in the order of printing. Each function prints its heading.
var tables = []struct {
	name string
	make func(*evaluation)
}{
	{"hotpath", hotPath},
	{"throughput", throughput},
	{"longtail", longTail},
	{"latency", latency},
	{"windows", windows},
	{"outage", outage},
	{"memory", memory},
	{"fleet", fleet},
	{"script", script},
	{"rivals", rivals},
}

func main() {
	e := &evaluation{rounds: 3}
	var names []string
	for _, t := range tables {
		names = append(names, t.name)
	}
	only := flag.String("only", strings.Join(names, ","), "tables to print")
	flag.BoolVar(&e.quick, "quick", false, "very short runs")
	flag.DurationVar(&e.span, "span", 2*time.Second, "length of one measurement")
	flag.Float64Var(&e.pace, "pace", 5000, "requests per second of the open loops")
	flag.Parse()
	if e.quick {
		e.rounds, e.span = 1, 100*time.Millisecond
	}
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		testkit.Must(e, slices.Contains(names, name), "-only: unknown table %q, must be of %v", name, names)
	}
	e.setup()
	for _, t := range tables {
		if slices.Contains(chosen, t.name) {
			from := time.Now()
			t.make(e)
			e.Logf("%s: %v", t.name, time.Since(from).Round(time.Second))
		}
	}
	e.clean()
	if e.failed.Load() {
		os.Exit(1)
	}
}

// short returns brief in a run with -quick, otherwise full.
func short[T any](e *evaluation, full, brief T) T {
	if e.quick {
		return brief
	}
	return full
}

func (e *evaluation) setup() {
	processor := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(text); m != nil {
		processor = string(m[1])
	}
	server := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server") // redistest starts the same server
	version, err := exec.Command(server, "--version").Output()
	testkit.NoErr(e, err)
	fmt.Printf("## Setup\n\n")
	rows := [][]string{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"processor", fmt.Sprintf("%s, %d cores, %s", processor, runtime.NumCPU(), runtime.GOOS)},
		{"Go", runtime.Version()},
		{"server, on the same machine", regexp.MustCompile(`^.*?v=\S+`).FindString(string(version))},
		{"run", fmt.Sprintf("quick %v, span %v, %d rounds, pace %v/s", e.quick, e.span, e.rounds, e.pace)},
	}
	build, _ := debug.ReadBuildInfo()
	peers := regexp.MustCompile(`httprate|redis_rate|go-redis|go-limiter|throttled|ulule|time$`)
	for _, d := range build.Deps {
		if peers.MatchString(d.Path) {
			rows = append(rows, []string{d.Path, d.Version})
		}
	}
	e.table([]string{"what", "which"}, rows)
}

func (e *evaluation) table(head []string, rows [][]string) {
	fmt.Printf("| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
	fmt.Printf("\n")
}

// compare prints a row of figures for each peer. A figure is the median over the rounds, each of which
// measures all peers. The last row has the medians of the ratios of the first two peers.
func (e *evaluation) compare(head []string, peers []peer, measure func(p peer) []float64) {
	figures := make([][][]float64, len(peers)) // figures by peer, round and column
	for range e.rounds {
		for i, p := range peers {
			figures[i] = append(figures[i], measure(p))
		}
	}
	over := func(of func(round int) float64) string {
		var all []float64
		for round := range e.rounds {
			all = append(all, of(round))
		}
		return number(median(all))
	}
	rows := make([][]string, len(peers))
	ratios := []string{own + " / " + reference}
	for i, p := range peers {
		rows[i] = []string{p.name}
		for k := range head {
			rows[i] = append(rows[i], over(func(round int) float64 { return figures[i][round][k] }))
		}
	}
	for k := range head {
		ratio := func(round int) float64 { return figures[0][round][k] / figures[1][round][k] }
		ratios = append(ratios, over(ratio))
	}
	e.table(slices.Concat([]string{"limiter"}, head), slices.Concat(rows, [][]string{ratios}))
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// number formats x with three digits, or with all digits before the decimal point if there are more.
func number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "-"
	case math.Abs(x) >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x+0, 'g', 3, 64) // adding 0 turns -0 into 0
}

func (e *evaluation) Helper()          {}
func (e *evaluation) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *evaluation) clean() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

func (e *evaluation) TempDir() string {
	dir, err := os.MkdirTemp("", "evaluation")
	testkit.NoErr(e, err)
	e.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (e *evaluation) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	e.clean()
	os.Exit(1)
}

func (e *evaluation) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (e *evaluation) Errorf(format string, args ...any) {
	e.Logf(format, args...)
	e.failed.Store(true)
}

func (e *evaluation) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }
func (e *evaluation) Skip(args ...any)                  { e.Fatal(args...) }
