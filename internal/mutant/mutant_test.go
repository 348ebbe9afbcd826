package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// shop is a module of two packages: price, and till, whose tests notice what price does wrong.
var shop = map[string]string{
	"go.mod": "module shop\n\ngo 1.25\n",
	"price/price.go": `package price

type Basket struct{ items []int }

func (b *Basket) Add(items ...int) { b.items = append(b.items, items...) }

func (b Basket) Sum() (sum int) {
	for _, item := range b.items {
		sum += item
	}
	return sum
}

const discount = 3
`,
	"till/till_test.go": `package till

import ("shop/price"; "testing")

func total() int {
	var b price.Basket
	b.Add(1, 2)
	b.Add(3)
	return b.Sum()
}

func TestTotal(t *testing.T) {
	if total() != 6 { t.Errorf("%d", total()) }
}

func TestPanics(t *testing.T) {
	if total() != 6 { panic("no") }
}
`,
}

func openShop(t *testing.T) Source {
	dir := t.TempDir()
	for name, text := range shop {
		path := filepath.Join(dir, name)
		testkit.NoErr(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(dir)
	return Read(t)
}

func TestATestNoticesAMutationInAnotherPackage(t *testing.T) {
	source := openShop(t)
	mutations := []Mutation{
		{"the last item is forgotten", []Edit{{"sum += item", "sum += item * 0"}}},
		{"the sum is one too large", []Edit{{"return sum\n", "return sum + one\n"},
			{"for _, item", "one := 1\n\tfor _, item"}}},
		{"nothing is added", []Edit{{"append(b.items, items...)", "append(b.items, items[:0]...)"}}},
		{"nothing changes", []Edit{{"sum += item", "sum = sum + item"}}},
	}

	built := source.Build(t, "./till", mutations)

	for _, m := range mutations[:3] {
		built.Fails(t, m.Name, "TestTotal")
	}
	for _, unnoticed := range []struct{ mutation, test string }{
		{"", "TestTotal"}, {"nothing changes", "TestTotal"},
		{"nothing is added", "TestNone"}, {"nothing is added", "TestPanics"},
	} {
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			built.Fails(r, unnoticed.mutation, unnoticed.test)
		}()
		testkit.Check(t, r.failed, "%q and %s: a test that does not fail by itself counts as one that does",
			unnoticed.mutation, unnoticed.test)
	}
}

// recorder is a test that fails without failing this one.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	panic(r)
}

func TestAMutationThatTestsNothingIsRefused(t *testing.T) {
	source := openShop(t)
	for edit, want := range map[string]string{
		"no such text": "occurs 0 times", "item": "occurs", "discount = 3": "the bodies of functions only",
		"func (b Basket) Sum() (sum int)": "the bodies of functions only",
	} {
		_, err := source.withSwitches([]Mutation{{"m", []Edit{{edit, strings.Replace(edit, "s", "x", 1)}}}})
		testkit.Check(t, err != nil && strings.Contains(err.Error(), want), "%q: %v, want %q", edit, err, want)
	}
}
