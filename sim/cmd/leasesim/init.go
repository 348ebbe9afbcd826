package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

func (p *program) initCommand() *cobra.Command {
	var example string
	var list, force bool
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented scenario to start from",
		Long: `init writes a scenario with every field, its unit, its default and its meaning: to standard output, or to FILE, which
it does not overwrite without --force. --example writes one of the built-in examples, which -f example:NAME runs as they
are, and --list names them.`,
		Example: `  leasesim init > fleet.yaml
  leasesim init fleet.yaml
  leasesim init --list
  leasesim init --example flash-sale sale.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if list {
				if example != "" || len(args) > 0 || force {
					return fmt.Errorf("%w: init --list stands alone", errUsage)
				}
				return listExamples(c.OutOrStdout())
			}
			text, err := scenarioText(example)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if force {
					return fmt.Errorf("%w: init --force is about a FILE, and there is none", errUsage)
				}
				_, err = c.OutOrStdout().Write(text)
				return err
			}
			return writeNew(args[0], text, force)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&example, "example", "", "write this built-in example instead of the template")
	flags.BoolVar(&list, "list", false, "name the built-in examples")
	flags.BoolVar(&force, "force", false, "overwrite FILE")
	return c
}

// scenarioText is an example's text, or without a name the template's.
func scenarioText(example string) ([]byte, error) {
	if example == "" {
		return scenfile.Template(), nil
	}
	all := scenfile.Examples()
	i := slices.IndexFunc(all, func(e scenfile.Example) bool { return e.Name == example })
	if i >= 0 {
		return all[i].Text, nil
	}
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return nil, fmt.Errorf("%w: --example is %q, must be one of %s", errUsage, example, strings.Join(names, ", "))
}

func listExamples(w io.Writer) error {
	t := view.Table{Columns: []string{"example", "what it is"}}
	for _, e := range scenfile.Examples() {
		t.Add(e.Name, e.Description)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// writeNew writes a file that is not there yet, or with force any file.
func writeNew(path string, text []byte, force bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !force {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("leasesim: %s is there already; --force overwrites it", path)
	}
	if err != nil {
		return fmt.Errorf("leasesim: %w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
