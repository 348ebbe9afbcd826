package search

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// ErrInfeasible is wrapped by the error of a question that no policy answers; the Plan says how
// near one came.
var ErrInfeasible = errors.New("search: no policy meets the targets")

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
	// Grow also asks until how many processes the answer holds.
	Grow bool
	// TimeLimit ends the search after half of it, and the confirmation at its end, with the best found
	// until then, which depends on the machine. 0 means none.
	TimeLimit time.Duration
}
