// Package sim simulates a fleet of limiters on a virtual clock: its processes, load, network and
// Redis, and what goes wrong with them. It runs the code of package lease that production runs, and
// audits every admission.
//
// Most callers want Run: it takes a Scenario and returns a Report. This package only gives names to
// what its rooms hold. The data goes through them in this order:
//
//	scenario    what is asked: fleet, load, network, Redis, faults (scenario/file reads it as YAML,
//	            scenario/trace reads recorded requests)
//	arrival     when the requests of each process come
//	engine      the simulated world: processes, network, Redis, and the books of every token
//	audit       whether the promise was kept, over all windows
//	report      what was found: figures with intervals over the replications
//	search      one question to many simulations: sweeps, plans, thresholds
//	view        all of that shown to a person or a program: tables, charts, pages
//
// Beside them stand rival (other algorithms on the same requests), random (streams of numbers that
// are the same on every machine), and cmd/leasesim (the command). docs/simulator.md says how to use
// that.
//
// Everything is exact and repeatable: a scenario and a seed give the same Report to the last bit on
// any machine. Nothing here reads a wall clock, but for the part of the Report called Machine.
package sim

import (
	"context"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/engine"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Run simulates s with a Runner's defaults. The error wraps ErrInvalidScenario, ErrInterrupted or
// ErrNotConserved.
func Run(ctx context.Context, s Scenario) (Report, error) { return engine.Runner{}.Run(ctx, s) }

// Runner runs scenarios; its zero value is a good default.
type Runner = engine.Runner

// What is asked: see package scenario.
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
	Partition    = scenario.Partition
	Redis        = scenario.Redis
	RedisFault   = scenario.RedisFault

	Rate         = scenario.Rate
	Ratio        = scenario.Ratio
	Cost         = scenario.Cost
	Dist         = scenario.Dist
	DistKind     = scenario.DistKind
	DurationDist = scenario.DurationDist
	DriftDist    = scenario.DriftDist
	TokenDist    = scenario.TokenDist
)

// What is answered: see package report.
type (
	Report      = report.Report
	Figures     = report.Figures
	Relief      = report.Relief
	Figure      = report.Figure
	Named       = report.Named
	Difference  = report.Difference
	RivalReport = report.RivalReport
	ClassReport = report.ClassReport
	Series      = report.Series
	Member      = report.Member
	Machine     = report.Machine
)

// The kinds of workload, the verbs of requests, the distributions and the faults of Redis.
const (
	Constant  = scenario.Constant
	Poisson   = scenario.Poisson
	OnOff     = scenario.OnOff
	Pareto    = scenario.Pareto
	Diurnal   = scenario.Diurnal
	Flash     = scenario.Flash
	Sync      = scenario.Sync
	Boundary  = scenario.Boundary
	Adversary = scenario.Adversary
	Closed    = scenario.Closed
	Replay    = scenario.Replay

	VerbAllow = scenario.VerbAllow
	VerbTry   = scenario.VerbTry
	VerbWait  = scenario.VerbWait

	DistConstant  = scenario.DistConstant
	DistUniform   = scenario.DistUniform
	DistNormal    = scenario.DistNormal
	DistExp       = scenario.DistExp
	DistLognormal = scenario.DistLognormal
	DistPareto    = scenario.DistPareto

	FaultOutage       = scenario.FaultOutage
	FaultHang         = scenario.FaultHang
	FaultSlow         = scenario.FaultSlow
	FaultRestartEmpty = scenario.FaultRestartEmpty
	FaultFailover     = scenario.FaultFailover
	FaultClockStep    = scenario.FaultClockStep
)

// SchemaVersion is that of Report's JSON.
const SchemaVersion = report.SchemaVersion

// The errors that a caller may look for with errors.Is.
var (
	ErrInvalidScenario = scenario.ErrInvalidScenario
	ErrQuantity        = scenario.ErrQuantity
	ErrInterrupted     = engine.ErrInterrupted
	ErrNotConserved    = engine.ErrNotConserved
)

// Constantly is the distribution of one value.
func Constantly(d time.Duration) DurationDist { return scenario.Constantly(d) }

// MoreIsBetter reports whether the figure with a JSON key is good where it is large.
func MoreIsBetter(name string) bool { return report.MoreIsBetter(name) }

// IsPart reports whether the figure with a JSON key is a part of one, and written in percent.
func IsPart(name string) bool { return report.IsPart(name) }
