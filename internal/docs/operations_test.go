package docs

import (
	"path"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// TestOperationsHasEverySetting: docs/operations.md names every field of a Policy.
func TestOperationsHasEverySetting(t *testing.T) {
	page, policy := read(t).texts["docs/operations.md"], reflect.TypeFor[lease.Policy]()
	for field := range policy.Fields() {
		name := "`Policy." + field.Name + "`"
		testkit.Check(t, strings.Contains(page, name), "docs/operations.md does not have %s", name)
	}
}

// TestOperationsHasTheLogLines: each line that docs/operations.md explains begins a text of the source, and
// each text that a logger of package hybrid gets as it stands is explained.
func TestOperationsHasTheLogLines(t *testing.T) {
	r := read(t)
	var source strings.Builder
	for file, text := range r.texts {
		isTest := strings.HasSuffix(file, "_test.go")
		if strings.HasPrefix(file, "hybrid/") && path.Ext(file) == ".go" && !isTest {
			source.WriteString(text)
		}
	}
	page := r.texts["docs/operations.md"]
	row := regexp.MustCompile("(?m)^\\| `((?:hybrid|rules|xtime): [^`]*)`")
	explained := row.FindAllStringSubmatch(page, -1)
	testkit.Check(t, len(explained) > 10, "docs/operations.md explains %d lines", len(explained))
	for _, m := range explained {
		testkit.Check(t, strings.Contains(source.String(), `"`+m[1]), "no log line begins with %q", m[1])
	}
	logged := regexp.MustCompile(`(?:\.(?:Info|Warn|Error)\(\s*|\.warnSeldom\(\w+, key,\s+|const text = )` +
		`"(\w+: [^"]*)"`)
	found := logged.FindAllStringSubmatch(source.String(), -1)
	testkit.Check(t, len(found) >= len(explained), "found %d log lines in the source", len(found))
	for _, m := range found {
		known := false
		for _, e := range explained {
			known = known || strings.HasPrefix(m[1], e[1])
		}
		testkit.Check(t, known, "docs/operations.md does not explain %q", m[1])
	}
}
