package yamlfile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The packages that read files with a Format test what it reads and what it reports.

func TestParentUndoesJoinAndIndex(t *testing.T) {
	for _, path := range []string{"", "a", "a.b", `a["."]`, `a["b[\"c"].d`} {
		for _, name := range []string{"x", "", ".", "a.b", "[0]", `"]`, `["`, "é", "/{a}/"} {
			got := parent(Join(path, name))
			testkit.Check(t, got == path, "%s is above %s, want %s", got, Join(path, name), path)
		}
		testkit.Check(t, parent(Index(path, 3)) == path, "%s is above %s", parent(Index(path, 3)), Index(path, 3))
	}
}

func TestAValueIsUnreadWithinAndAroundAMistake(t *testing.T) {
	r := new(Format).NewReader("f", nil)
	r.Bad(`routes["/a"].rules[1]`, start, "is wrong")
	for path, want := range map[string]bool{
		"": true, "routes": true, `routes["/a"]`: true, `routes["/a"].rules[1]`: true,
		`routes["/a"].rules[1].x`: true,
		`routes["/a"].rules[0]`:   false, `routes["/a"].cost`: false, `routes["/"]`: false, "rules": false,
	} {
		testkit.Check(t, r.Unread(path) == want, "%q is unread: %t", path, !want)
	}
}

type section struct {
	Name   string
	Lone   []string
	Secret int `json:"-"`
	Below  []struct{ DeepField bool }
}

var format = &Format{
	Name: strings.ToLower, Fields: map[string]Field{"section.lone": {Want: "a list", Required: true}},
}

func TestPathsLeadToEveryField(t *testing.T) {
	got := format.Paths("", reflect.TypeFor[section]())
	want := []string{"name", "lone", "lone[]", "below", "below[].deepfield"}
	testkit.Check(t, slices.Equal(got, want), "%v, want %v", got, want)
}

func TestARequiredListNeedsAValue(t *testing.T) {
	for text, want := range map[string]string{
		"name: a": "f:1:1: lone: is missing, must be a list", "lone:": "f:1:6: lone: has no value, must be a list",
		"lon: [a]": "f:1:1: lon: unknown field; did you mean lone?", "lone: []\nbelow:": "",
	} {
		var s section
		r := format.NewReader("f", nil)
		r.Read("", []byte(text), reflect.ValueOf(&s).Elem())
		var got []string
		for _, p := range r.Problems() {
			got = append(got, p.Error())
		}
		testkit.Check(t, strings.Join(got, "\n") == want, "%q: %q, want %q", text, got, want)
	}
}

func TestSimilarNamesAreGuessed(t *testing.T) {
	for name, want := range map[string]string{
		"lottery": "", "lots": "loss", "Round_Trip": "round_trip", "round-trip": "round_trip",
		"rond_tripp": "round_trip", "x": "", "": "",
	} {
		got := format.similar(name, []string{"loss", "round_trip", "duplicates"})
		testkit.Check(t, got == want, "%q may have been meant as %q, want %q", name, got, want)
	}
}
