//go:build !linux

package redistest

import "os/exec"

// started starts the server cmd, which lives on if this process is killed.
func started(cmd *exec.Cmd, exited chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}
