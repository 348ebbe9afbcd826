package file

import (
	"embed"
	"fmt"
	"slices"
)

//go:embed examples/*.yaml
var exampleFiles embed.FS

//go:embed template.yaml
var template []byte

// exampleOrder is from what most fleets look like to what few do.
var exampleOrder = []string{
	"steady-fleet", "flash-sale", "noisy-neighbours", "small-burst", "multi-limit-tenants", "redis-failover",
	"real-processes",
}

// Example is a scenario that ships with this package; Load takes its name after "example:".
type Example struct {
	Name, Description string
	Text              []byte // the commented file
}

// Examples are the built-in scenarios, simple ones first.
func Examples() (all []Example) {
	for _, name := range exampleOrder {
		file := "examples/" + name + ".yaml"
		text, err := exampleFiles.ReadFile(file)
		if err != nil {
			panic(fmt.Sprintf("file: an example is missing: %v", err))
		}
		s, err := Parse(file, text)
		if err != nil {
			panic(fmt.Sprintf("file: an example is wrong: %v", err))
		}
		all = append(all, Example{name, s.Description, text})
	}
	return all
}

// Template is a commented scenario with every field: those that most users set are there, and every
// other one is commented out with its default value, its unit and its meaning. A line of it that
// begins with # and then no space is a field.
func Template() []byte { return slices.Clone(template) }
