package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// TestANewcomerGetsFromInitToARunOfThePlan by what the help and the outputs name, and nothing else.
func TestANewcomerGetsFromInitToARunOfThePlan(t *testing.T) {
	t.Parallel()
	command := func(text, of string) string {
		text = strings.ReplaceAll(text, "\\\n ", "")
		found := regexp.MustCompile(`(?m)^ *leasesim (` + of + ` .*)$`).FindStringSubmatch(text)
		testkit.Must(t, found != nil, "no command %s in\n%s", of, text)
		return found[1]
	}
	// Given the help, when its first commands are typed,
	help := leasesim(t, "--help").ends(0).stdout
	first, second := command(help, "init"), command(help, "plan")
	line, path, _ := strings.Cut(first, " > ")
	folder := t.TempDir()
	scenario := filepath.Join(folder, path)
	testkit.NoErr(t, os.WriteFile(scenario, []byte(leasesim(t, line).ends(0).stdout), 0o644))
	testkit.Must(t, strings.Contains(second, "-f "+path), "%s does not plan %s", second, path)
	second = strings.Replace(second, path, scenario, 1) + " --reps 3 --duration "
	if testkit.Long(t, "a plan of runs of a second", "one of four seconds") {
		second += "4s"
	} else {
		second += "1s"
	}
	plan := leasesim(t, second).ends(0)
	// then the plan names the command that has its figures.
	r := simulated(t, command(plan.stdout, "run"))
	testkit.Check(t, strings.Contains(strings.Join(strings.Fields(plan.stdout), " "),
		": "+view.Figure("calls_per_s", r.CallsPerS)+" lease calls per second."), "%+v\n%s", r.CallsPerS, plan.stdout)
}
