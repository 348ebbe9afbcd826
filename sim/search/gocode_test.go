package search

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// codeCases are scenarios whose code has all that code can have.
func codeCases() []sim.Scenario {
	plain := fleet()
	plain.Policy.Target, plain.Policy.TTL = 50*time.Millisecond, 200*time.Millisecond
	odd := plain
	odd.CallTimeout = 1500 * time.Microsecond
	odd.Limits = []lease.Limit{{Tokens: 7, Per: 250 * time.Millisecond, Burst: 30}, lease.PerMinute(1000), lease.PerHour(9).WithBurst(20), {Tokens: 3, Per: 1001 * time.Nanosecond * 1000}}
	odd.Policy = lease.Policy{
		Target: time.Second, TTL: 90 * time.Minute / 3, MinBatch: 2, MaxBatch: 9, Overcommit: 5,
		ColdStart: lease.ColdStartAllow, Fallback: lease.FallbackAllowAll, StartEmpty: true, StrictExpiry: true,
	}
	odd.Groups = []sim.Group{{Name: "all", Count: 1, Weight: 4}}
	weights := plain
	weights.Policy.Fallback = lease.FallbackLocalShare
	weights.Groups = []sim.Group{{Name: "a\n*/", Count: 1, Weight: 4}, {Name: "b", Count: 1, Weight: 1}}
	return []sim.Scenario{plain, odd, weights}
}

func TestTheCodeCompilesAndIsTheConfiguration(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range codeCases() {
		// Given the code, pasted into a program of this module that tells what it declares,
		code := goCode(s, Plan{Scenario: "quoted \"\n", ScenarioHash: s.Hash(), Seed: 1})
		program := "package main\n\n" + code + `
func main() {
	if err := limits.Validate(); err != nil {
		panic(err)
	}
	text, err := json.Marshal([]any{limits.Limits, limits.Policy, limits.CallTimeout})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
`
		program = strings.Replace(program, "import (", "import (\n\t\"encoding/json\"\n\t\"fmt\"", 1)
		file := filepath.Join(t.TempDir(), "main.go")
		overlay := filepath.Join(t.TempDir(), "overlay.json")
		replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "pasted", "main.go"): file}})
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{file: program, overlay: string(replace)} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// when it is compiled and run,
		run := exec.Command("go", "run", "-overlay", overlay, "./pasted")
		run.Dir = root
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, program)
		}
		// then it is what was simulated. The call timeout's default is left out, and a weight that all have is in the policy.
		want := s.Policy
		timeout := s.CallTimeout
		if timeout == lease.DefaultCallTimeout {
			timeout = 0
		}
		if i == 1 {
			want.Weight = 4
		}
		text, err := json.Marshal([]any{s.Limits, want, timeout})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)); got != string(text) {
			t.Errorf("the code declares\n%s, want\n%s\n%s", got, text, code)
		}
	}
}

func TestTheCodeNamesWeightsThatDiffer(t *testing.T) {
	code := goCode(codeCases()[2], Plan{})
	for _, want := range []string{`// Weight: 4, // of the processes of "a\n*/"`, `// Weight: 1, // of the processes of "b"`} {
		if !strings.Contains(code, want) {
			t.Errorf("no %s in\n%s", want, code)
		}
	}
}

func TestTheYAMLIsTheScenariosPolicy(t *testing.T) {
	for _, s := range codeCases() {
		given := s
		given.Limits = []lease.Limit{lease.PerSecond(1)}
		for _, changed := range []bool{false, true} {
			text := yamlCode(s, s)
			if changed {
				text = yamlCode(s, given)
			}
			if strings.Contains(text, "limits:") != changed {
				t.Errorf("limits changed: %v\n%s", changed, text)
			}
			if !changed {
				text += "limits: [" + quotedLimits(s.Limits) + "]\n"
			}
			got, err := scenfile.Parse("a.yaml", []byte(text))
			if err != nil || got.Policy != s.Policy || fmt.Sprint(got.Limits) != fmt.Sprint(s.Limits) {
				t.Errorf("%v\n%s\n%+v", err, text, got)
			}
		}
	}
}

func quotedLimits(limits []lease.Limit) string {
	var texts []string
	for _, l := range limits {
		texts = append(texts, l.String())
	}
	return strings.Join(texts, ", ")
}
