package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/redisbucket"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func initCommand() *cobra.Command {
	var list bool
	c := command("init", nil)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		text := string(scenfile.Template())
		t := view.Table{Columns: []string{"example", "description"}}
		for _, e := range scenfile.Examples() {
			if t.Add(e.Name, e.Description); len(args) == 1 && args[0] == e.Name {
				text, args = string(e.Text), nil
			}
		}
		if len(args) > 0 {
			return fmt.Errorf("%w: init takes the name of one example, not %q; see init --list", errUsage, args)
		}
		if list {
			text = t.String()
		}
		_, err := io.WriteString(c.OutOrStdout(), text)
		return err
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
