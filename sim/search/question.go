package search

import (
	"errors"

	"github.com/yuzhi-go/yuzhi/sim"
)

var (
	// ErrInfeasible is wrapped by the error of a question whose targets no policy meets. Plan.Miss says more.
	ErrInfeasible = errors.New("search: no policy meets the targets")
	// ErrUndecided is wrapped by the error of a question that the longest allowed runs do not answer.
	ErrUndecided = errors.New("search: undecided, as the longest runs leave open whether the targets hold")
)

// Question describes a plan to make.
type Question struct {
	Scenario sim.Scenario // a valid scenario; the plan compares its policy with the chosen one
	// Targets must hold at the pessimistic end of each figure's interval; each is an upper or a lower bound.
	// A nil Targets bounds false_reject_ratio to 0.5 %. The bound of the policy is also a target.
	Targets []Threshold
	// OvercommitMax is the largest Policy.Overcommit, by which the promise may be weakened. An OvercommitMax
	// below the scenario's own overcommit counts as the scenario's own.
	OvercommitMax int64
	// MustHold names the Stresses under which the targets must also hold. An empty MustHold demands no
	// stress.
	MustHold []string
}
