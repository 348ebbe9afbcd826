package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

func scriptsCommand() *cobra.Command {
	sources := redisbucket.Scripts()
	names := slices.Sorted(maps.Keys(sources))
	return &cobra.Command{
		Use:   "scripts NAME",
		Short: "Print a Lua script of the library, for servers on which an operator loads them",
		Long: `scripts prints the source of one of the scripts that the library runs in Redis, byte for byte. Where an operator has
loaded both, the library's user needs +evalsha but not +eval, with which a stolen password could run any script. Load
them again after every restart, on every master and replica:

    for s in lease configure; do leasesim scripts $s | redis-cli -x SCRIPT LOAD; done`,
		Example: `  leasesim scripts lease
  leasesim scripts configure`,
		ValidArgs: names,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || sources[args[0]] == "" {
				return fmt.Errorf("%w: scripts takes one name of %q", live.ErrUsage, names)
			}
			_, err := fmt.Fprint(c.OutOrStdout(), sources[args[0]])
			return err
		},
	}
}
