package main

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var update = flag.Bool("update", false, "TestThePublishedSchemaIsThePrograms: write what is, instead of "+
	"comparing with it")

func TestThePublishedSchemaIsThePrograms(t *testing.T) {
	const path = "../../../docs/report.schema.json"
	made, err := json.MarshalIndent(reportSchema(), "", "  ")
	testkit.NoErr(t, err)
	is := string(made) + "\n"
	if *update {
		testkit.NoErr(t, os.WriteFile(path, []byte(is), 0o644))
	}
	testkit.Check(t, content(t, path) == is, "%s is not that of what is written; "+
		"if that is meant: go test ./sim/cmd/leasesim -run PublishedSchema -update", path)
}

// conforms checks a JSON text against the schema of a command.
func conforms(t *testing.T, command, text string) error {
	t.Helper()
	published, err := jsonschema.UnmarshalJSON(strings.NewReader(content(t, "../../../docs/report.schema.json")))
	testkit.NoErr(t, err)
	c := jsonschema.NewCompiler()
	testkit.NoErr(t, c.AddResource("schema.json", published))
	own, err := c.Compile("schema.json#/$defs/" + command)
	testkit.NoErr(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	testkit.NoErr(t, err)
	return own.Validate(value)
}

func TestEveryCommandsOutputConformsToTheSchema(t *testing.T) {
	t.Parallel()
	fleet := fileOf(t, few)
	lines := map[string]string{
		"run":          "run -f " + fleet,
		"compare":      "compare -f example:priorities --duration 1s --set warmup=0s --reps 2",
		"replay":       "replay -f " + fleet + " --trace " + fileOf(t, "time_s\n0\n0.1\n"),
		"sweep":        "sweep -f " + fleet + " --vary policy.target=20ms,50ms --vary policy.ttl=200ms,300ms",
		"plan":         "plan -f " + fleet + " --false-rejects 50% --duration 300ms",
		"live":         "live --duration 300ms --set 'limits=[1000/s burst 100]'",
		"compare-live": "compare --live --duration 500ms",
	}
	for command := range outputs {
		line, ok := lines[command]
		if !ok {
			t.Errorf("no %s is tried", command)
			continue
		}
		e := leasesim(t, line+" --out json")
		testkit.Check(t, e.status != exitUsage && e.stdout != "", "%s: status %d, %s", e.line, e.status, e.stderr)
		for text := range strings.SplitSeq(strings.ReplaceAll(e.stdout, "\n}\n{", "\n}\x00{"), "\x00") {
			err := conforms(t, command, text)
			testkit.Check(t, err == nil, "%s: %v", e.line, err)
		}
	}
}
