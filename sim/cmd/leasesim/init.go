package main

import (
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

func initCommand() *cobra.Command {
	var name string
	var list bool
	c := command("init", func(c *cobra.Command) error {
		examples := scenfile.Examples()
		i := slices.IndexFunc(examples, func(e scenfile.Example) bool { return e.Name == name })
		text := string(scenfile.Template())
		switch {
		case list && name != "":
			return fmt.Errorf("%w: init --list takes no NAME", errUsage)
		case list:
			t := view.Table{Columns: []string{"example", "description"}}
			for _, e := range examples {
				t.Add(e.Name, e.Description)
			}
			text = t.String()
		case i >= 0:
			text = string(examples[i].Text)
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
