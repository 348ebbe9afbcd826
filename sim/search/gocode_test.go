package search

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestTheCodeCompilesAndIsTheConfiguration(t *testing.T) {
	// Given configurations with all that code can have,
	plain, odd := fleet(), fleet()
	plain.Policy.Target, plain.Policy.TTL = 2500*time.Microsecond, 200*time.Millisecond
	testkit.Check(t, strings.Contains(goCode(plain), " 2500 * time.Microsecond,"), "%s", goCode(plain))
	odd.Limits = []lease.Limit{
		{Tokens: 7, Per: 250 * time.Millisecond, Burst: 30}, lease.PerMinute(1000).WithBurst(5),
		{Tokens: 3, Per: 1001 * time.Nanosecond * 1000, Burst: 4}, {Tokens: 1, Per: 90 * time.Second, Burst: 2},
	}
	odd.Policy = lease.Policy{
		Target: time.Second, TTL: 30 * time.Minute, Overcommit: 5, Fallback: lease.FallbackAllowAll,
		CallsPerSecond: 9000,
	}
	windows := fleet()
	windows.Limits = []lease.Limit{
		lease.Sliding(100, time.Minute), lease.Calendar(1000, 24*time.Hour, 16*time.Hour),
		lease.Calendar(7, time.Minute, 0),
	}
	all := []sim.Scenario{plain, odd, windows}
	// when their code is pasted into a program of this module that tells what it declares,
	program := `package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

func main() {
	e := json.NewEncoder(os.Stdout)
	for _, c := range []hybrid.Config{
		CODE,
	} {
		if err := c.Validate(); err != nil {
			panic(err)
		}
		if err := e.Encode([]any{c.Limits, c.Policy}); err != nil {
			panic(err)
		}
	}
}
`
	var code []string
	for _, s := range all {
		code = append(code, strings.TrimSpace(goCode(s)))
	}
	program = strings.Replace(program, "CODE", strings.Join(code, ",\n"), 1)
	root, err := filepath.Abs("../..")
	testkit.NoErr(t, err)
	file, overlay := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "overlay.json")
	pasted := map[string]string{filepath.Join(root, "pasted", "main.go"): file}
	replace, err := json.Marshal(map[string]any{"Replace": pasted})
	testkit.NoErr(t, err)
	for path, text := range map[string]string{file: program, overlay: string(replace)} {
		testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o644))
	}
	run := exec.Command("go", "run", "-overlay", overlay, "./pasted")
	run.Dir = root
	out, err := run.CombinedOutput()
	testkit.Must(t, err == nil, "%v\n%s\n%s", err, out, program)
	// then it declares the simulated configuration.
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		want, err := json.Marshal([]any{all[i].Limits, all[i].Policy})
		testkit.Check(t, err == nil && line == string(want), "%v: the code declares\n%s, want\n%s", err, line, want)
	}
}
