package main

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/ui"
)

func uiCommand() *cobra.Command {
	var port uint16
	var window bool
	c := command("ui", func(c *cobra.Command) error {
		err := ui.Serve(c.Context(), int(port), func(url string) {
			fmt.Fprintln(c.OutOrStdout(), url)
			fmt.Fprintln(c.ErrOrStderr(), "Ctrl-C stops the server.")
			if window {
				browse(url)
			}
		})
		if err != nil {
			return fmt.Errorf("leasesim: %w", err)
		}
		return nil
	})
	c.Flags().Uint16Var(&port, "port", 0, "port of 127.0.0.1 (default: any free one)")
	c.Flags().BoolVar(&window, "open", true, "browser window with the page")
	return c
}

// browse opens url in the user's browser, if there is one. The command also prints url.
func browse(url string) {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	if c := exec.Command(name, args...); c.Start() == nil {
		go c.Wait() //nolint:errcheck // a browser shows its own errors
	}
}
