package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAQuickRunPrintsEveryTableWithEveryPeer(t *testing.T) {
	redistest.Require(t)
	program := filepath.Join(t.TempDir(), "evaluation")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	testkit.Must(t, err == nil, "%v\n%s", err, out)

	// When the program makes all tables,
	var printed, said bytes.Buffer
	cmd := exec.Command(program, "-quick")
	cmd.Stdout, cmd.Stderr = &printed, &said
	err = cmd.Run()
	testkit.Must(t, err == nil, "%v\n%s\n%s", err, &said, &printed)

	// then each of them has the limiters that it is about,
	sections := map[string]string{}
	for section := range strings.SplitSeq("\n"+printed.String(), "\n## ") {
		heading, rest, _ := strings.Cut(section, "\n")
		sections[heading] = rest
	}
	shared, all := names(fleetwide), names(slices.Concat(fleetwide, local))
	for heading, want := range map[string][]string{
		"Setup":                              {"Go", "github.com/redis/go-redis/v9"},
		"The hot path":                       append(shared[1:], "yuzhi, Key.Allow, admitted"),
		"Throughput of one hot key":          append(all, "yuzhi / redis_rate"),
		"Many keys: uniform, 10/s each":      shared,
		"Many keys: Zipf 1.1, 100/s each":    shared,
		"Latency of a decision on a hot key": shared,
		"Excess in all windows":              append(shared, ownSafe),
		"An outage":                          append(shared[1:], ownDeny, ownShare),
		"Memory":                             all,
		"A fleet":                            {own, reference},
		"Server time of the scripts":         {"lease call, us", "call of redis_rate, us"},
		"Algorithms in the simulator":        {"`central`", "`static_split`", "`settle_afterwards`"},
	} {
		for _, name := range want {
			testkit.Check(t, strings.Contains(sections[heading], "\n| "+name+" | "),
				"%q has no row of %q:\n%s", heading, name, sections[heading])
		}
	}

	// and no window has more admissions than yuzhi promises.
	for line := range strings.SplitSeq(sections["Excess in all windows"], "\n") {
		kept := strings.HasSuffix(line, " | 0 | 0 |")
		testkit.Check(t, kept || !strings.HasPrefix(line, "| "+ownSafe), "%s", line)
	}
}

func names(peers []peer) (all []string) {
	for _, p := range peers {
		all = append(all, p.name)
	}
	return slices.Clip(all)
}
