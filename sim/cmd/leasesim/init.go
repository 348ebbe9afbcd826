package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) initCommand() *cobra.Command {
	var example string
	var list bool
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a commented scenario to start from",
		Long: `init writes a scenario with every field, its unit, its default and its meaning to standard output. --example writes one
of the built-in examples, which -f example:NAME runs as they are, and --list names them.`,
		Example: `  leasesim init > fleet.yaml
  leasesim init --list
  leasesim init --example flash-sale > sale.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			examples := scenfile.Examples()
			t := view.Table{Columns: []string{"example", "what it is"}}
			var names []string
			for _, e := range examples {
				t.Add(e.Name, e.Description)
				names = append(names, e.Name)
			}
			text := string(scenfile.Template())
			switch i := slices.Index(names, example); {
			case list && example != "":
				return fmt.Errorf("%w: init --list stands alone", errUsage)
			case list:
				text = t.String()
			case i >= 0:
				text = string(examples[i].Text)
			case example != "":
				return fmt.Errorf("%w: --example is %q, must be one of %s", errUsage, example, strings.Join(names, ", "))
			}
			_, err := io.WriteString(c.OutOrStdout(), text)
			return err
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&example, "example", "", "write this built-in example instead of the template")
	flags.BoolVar(&list, "list", false, "name the built-in examples")
	return c
}
