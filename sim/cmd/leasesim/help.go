package main

import (
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// helpMax is the most characters in a line of help.
const helpMax = 80

// flagSlop is the number of characters by which pflag exceeds the given width.
const flagSlop = 5

// helpFiles has a page for each command: usage, summary, description and examples.
//
//go:embed help
var helpFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bases":   func() string { return view.Bases },
	"figures": func() string { return list(search.FigureNames(), view.About) },
	"rivals":  func() string { return list(rival.Names(), rival.Describe) },
}).ParseFS(helpFiles, "help/*.txt"))

// command returns the command of a help page, without flags and arguments.
func command(page string, run func(c *cobra.Command) error) *cobra.Command {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, page+".txt", nil); err != nil {
		panic(err) // a fault in a page of this program
	}
	use, text, _ := strings.Cut(b.String(), "\n")
	short, text, _ := strings.Cut(text, "\n\n")
	long, examples, _ := strings.Cut(text, "\nExamples:\n")
	c := &cobra.Command{
		Use: use, Short: short, Long: view.Wrap(long, helpMax), Example: strings.TrimRight(examples, "\n"),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run(c) },
	}
	c.Flags().SortFlags = false
	return c
}

func list(names []string, about func(name string) string) string {
	const before = 24
	var b strings.Builder
	for _, name := range names {
		text := strings.ReplaceAll(view.Wrap(about(name), helpMax-before), "\n", "\n"+strings.Repeat(" ", before))
		fmt.Fprintf(&b, "  %-20s  %s\n", name, text)
	}
	return b.String()
}
