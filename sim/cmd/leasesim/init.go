package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/redisbucket"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) initCommand() *cobra.Command {
	var example, name string
	var list bool
	c := command("init", func(c *cobra.Command) error {
		examples := scenfile.Examples()
		t := view.Table{Columns: []string{"example", "what it is"}}
		var names []string
		for _, e := range examples {
			t.Add(e.Name, e.Description)
			names = append(names, e.Name)
		}
		text := string(scenfile.Template())
		switch i := slices.Index(names, cmp.Or(example, name)); {
		case list && (example != "" || name != ""):
			return fmt.Errorf("%w: init --list stands alone", errUsage)
		case list:
			text = t.String()
		case example != "" && name != "":
			return fmt.Errorf("%w: init takes a NAME or an --example", errUsage)
		case i >= 0:
			text = string(examples[i].Text)
		case example != "":
			return fmt.Errorf("%w: --example is %q, must be one of %s", errUsage, example, strings.Join(names, ", "))
		case name != "":
			text = scenfile.TemplateFor(name)
		}
		_, err := io.WriteString(c.OutOrStdout(), text)
		return err
	})
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%w: init takes one NAME, not %q", errUsage, args)
		}
		name = strings.Join(args, "")
		return nil
	}
	c.Flags().StringVar(&example, "example", "", "name of a built-in example, in place of the template")
	c.Flags().BoolVar(&list, "list", false, "list of the built-in examples")
	return c
}

func scriptsCommand() *cobra.Command {
	sources := redisbucket.Scripts()
	c := command("scripts", nil)
	c.ValidArgs = slices.Sorted(maps.Keys(sources))
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) != 1 || sources[args[0]] == "" {
			return fmt.Errorf("%w: scripts takes one name of %q", errUsage, c.ValidArgs)
		}
		_, err := io.WriteString(c.OutOrStdout(), sources[args[0]])
		return err
	}
	return c
}
