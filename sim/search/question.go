package search

import (
	"errors"

	"github.com/yuzhi-go/yuzhi/sim"
)

var (
	// ErrInfeasible is wrapped by the error of a question that no policy answers; the Plan says how
	// near one came.
	ErrInfeasible = errors.New("search: no policy meets the targets")
	// ErrUndecided is wrapped by the error of a question that runs of the length allowed do not answer.
	ErrUndecided = errors.New("search: undecided, as the longest runs leave open whether the targets hold")
)

// Question says what to plan for.
type Question struct {
	Scenario sim.Scenario // valid; its policy is the one to compare with
	// Targets must hold at the pessimistic end of each figure's interval; each is from above or below. nil
	// bounds false_reject_ratio to 0.5 %. The promise is a target too, where the policy makes it.
	Targets []Threshold
	// OvercommitMax is the most tokens by which the promise may be weakened, Policy.Overcommit.
	// Less than the scenario's own means that.
	OvercommitMax int64
	// MustHold names the Stresses under which the targets must hold too. None by default.
	MustHold []string
}
