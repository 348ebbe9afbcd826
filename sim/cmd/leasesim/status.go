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

// exitOK and the constants below are exit statuses, listed in docs/simulator.md.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitExceeded    = 3
	exitInfeasible  = 4
	exitUndecided   = 5
	exitInterrupted = 130 // the status that a shell reports for a program ended by Ctrl-C
)

var (
	// errExceeded means that the run worked and found the bound exceeded.
	errExceeded = errors.New("leasesim: the bound was exceeded")
	// errDisagree means that compare --live worked and found a difference.
	errDisagree = errors.New("leasesim: the simulation and the real fleet disagree")
	// errBusy means that compare --live found a difference on a machine that was too busy to compare.
	errBusy = errors.New("leasesim: the simulation and the real fleet disagree, and this machine was overloaded")
	// errUsage is wrapped by errors about the command line.
	errUsage = errors.New("leasesim")
)

// statuses maps errors to exit statuses. The first error that matches gives the status.
var statuses = []struct {
	err    error
	status int
}{
	{errUsage, exitUsage},
	{live.ErrUsage, exitUsage},
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

// shownText returns the text of an error for a terminal, without control characters and no longer than a
// screen. A server, a file or a key may have put control characters into the text.
func shownText(text string) string { return safetext.Text(text, 4000, "\n\t") }

func statusOf(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return exitFailed
}

// ourNames matches a name of one of our packages before the text of an error. The match includes a general
// part such as "invalid scenario: ", because the details after it say enough.
var ourNames = regexp.MustCompile(`(^|[ (:;\n])(?:sim|search|rival|trace|file|lease|hybrid|redisbucket): ` +
	`(?:invalid (?:scenario|limit|quantity|trace|policy|config|configuration): )?`)

// prefixed formats an error for readers of the command line, without the names of our packages. The text
// begins with the name of the program or of the invalid file.
func prefixed(err error) string {
	s := err.Error()
	for ourNames.MatchString(s) {
		s = ourNames.ReplaceAllString(s, "$1")
	}
	s = shownText(s)
	if strings.HasPrefix(s, "leasesim: ") || errors.Is(err, scenfile.ErrInvalid) && !errors.Is(err, errUsage) {
		return s
	}
	return "leasesim: " + s
}

// faults collects the errors of a command line.
type faults []error

func (f *faults) addf(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...))
	}
}
