package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// exitOK and the constants below are the exit statuses of docs/simulator.md.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitExceeded    = 3
	exitInfeasible  = 4
	exitUndecided   = 5
	exitInterrupted = 130 // a shell's status of a program that Ctrl-C ends
)

var (
	errExceeded = errors.New("leasesim: the bound was exceeded")
	errDisagree = errors.New("leasesim: the simulation and the real fleet disagree")
	errBusy     = errors.New("leasesim: the simulation and the real fleet disagree, and this machine was overloaded")
	// errUsage is wrapped by errors about the command line and the scenario.
	errUsage = live.ErrUsage
)

// statuses has the exit status of an error. The first match counts.
var statuses = []struct {
	err    error
	status int
}{
	{errUsage, exitUsage},
	{scenfile.ErrInvalid, exitUsage},
	{sim.ErrInvalidScenario, exitUsage},
	{search.ErrStress, exitUsage},
	{sim.ErrInterrupted, exitInterrupted},
	{search.ErrInfeasible, exitInfeasible},
	{search.ErrUndecided, exitUndecided},
	{errExceeded, exitExceeded},
	{errDisagree, exitExceeded},
	{errBusy, exitUndecided},
	{search.ErrNotMet, exitExceeded},
}

func statusOf(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return exitFailed
}

// ourNames matches the name of a package of this module before the text of an error, with a general part such
// as "invalid scenario: " before the details.
var ourNames = regexp.MustCompile(`(^|[ (:;\n])(?:sim|search|rival|trace|file|lease|hybrid|redisbucket): ` +
	`(?:invalid (?:scenario|limit|quantity|trace|policy|config|configuration): )?`)

// prefixed formats an error for a terminal, without the names of this module's packages. The text begins with
// the name of the program or of the invalid file.
func prefixed(err error) string {
	s := err.Error()
	for ourNames.MatchString(s) {
		s = ourNames.ReplaceAllString(s, "$1")
	}
	s = safetext.Text(s, 4000, "\n\t") // a server, a file or a key may have control characters
	if strings.HasPrefix(s, "leasesim: ") || errors.Is(err, scenfile.ErrInvalid) && !errors.Is(err, errUsage) {
		return s
	}
	return "leasesim: " + s
}

type faults []error

func (f *faults) addf(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...))
	}
}
