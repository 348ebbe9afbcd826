// Package sim simulates a fleet of limiters on a virtual clock: the fleet's processes, load, network, Redis,
// and their faults. The simulation runs the code of internal/protocol that production runs, and audits every
// admission.
//
// Run takes a Scenario and returns a Report. A scenario and a seed give the same Report to the last bit on
// any machine, except for its section Machine. These packages do the work:
//
//	scenario    fleet, load, network, Redis, faults (scenario/file reads them as YAML, scenario/trace reads
//	            recorded requests)
//	arrival     times of the requests of each process
//	engine      simulated processes, network and Redis, and the books of every token
//	audit       check of the promise (docs/protocol.md, section 1) over all windows
//	rival       other algorithms that decide the same requests
//	random      streams of numbers that are equal on every machine
//	report      figures with intervals over the replications
//	search      sweeps, plans and thresholds: one question to many simulations
//	view        tables, charts and pages of reports and searches
//
// The command is cmd/leasesim. See docs/simulator.md.
package sim

import (
	"context"
	"iter"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/engine"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Run simulates s with a default Runner. The error wraps ErrInvalidScenario, ErrInterrupted or
// ErrNotConserved.
func Run(ctx context.Context, s Scenario) (Report, error) { return engine.Runner{}.Run(ctx, s) }

// Requests returns the requests that a process of s makes in the first replication; -1 means all processes.
func Requests(s Scenario, process int) (iter.Seq[TraceRequest], error) {
	return engine.Requests(s, process)
}

// Record returns s with its workload drawn, as a replay of the requests that its first replication makes.
func Record(s Scenario) (Scenario, error) { return engine.Record(s) }

// Runner runs scenarios. The zero Runner is a good default.
type Runner = engine.Runner

// The types of a scenario are declared in package scenario.
type (
	Scenario     = scenario.Scenario
	Keys         = scenario.Keys
	Clock        = scenario.Clock
	Group        = scenario.Group
	Stops        = scenario.Stops
	Step         = scenario.Step
	Workload     = scenario.Workload
	Trace        = scenario.Trace
	TraceRequest = scenario.TraceRequest
	Network      = scenario.Network
	Redis        = scenario.Redis
	RedisFault   = scenario.RedisFault

	Ratio        = scenario.Ratio
	Cost         = scenario.Cost
	Dist         = scenario.Dist
	DurationDist = scenario.DurationDist
	TokenDist    = scenario.TokenDist
)

// The types of a Report are declared in package report.
type (
	Report      = report.Report
	Figures     = report.Figures
	Figure      = report.Figure
	Named       = report.Named
	Difference  = report.Difference
	RivalReport = report.RivalReport
	ClassReport = report.ClassReport
	Member      = report.Member
	Machine     = report.Machine
)

// DurationMax is the duration of the longest run.
const DurationMax = scenario.DurationMax

// These constants are kinds of workload, verbs of requests, distributions and faults of Redis. Package
// scenario declares more of them.
const (
	Constant  = scenario.Constant
	Poisson   = scenario.Poisson
	Flash     = scenario.Flash
	Sync      = scenario.Sync
	Adversary = scenario.Adversary
	Replay    = scenario.Replay

	VerbTry  = scenario.VerbTry
	VerbWait = scenario.VerbWait

	DistLognormal = scenario.DistLognormal

	FaultOutage       = scenario.FaultOutage
	FaultHang         = scenario.FaultHang
	FaultRestartEmpty = scenario.FaultRestartEmpty
	FaultFailover     = scenario.FaultFailover
)

// A caller may test for these errors with errors.Is.
var (
	ErrInvalidScenario = scenario.ErrInvalidScenario
	ErrInterrupted     = engine.ErrInterrupted
	ErrNotConserved    = engine.ErrNotConserved
)

// Constantly returns the distribution that has only the value d.
func Constantly(d time.Duration) DurationDist { return scenario.Constantly(d) }
