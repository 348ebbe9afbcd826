package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// started starts the server cmd. The kernel kills the server when this process ends in any way. Otherwise the
// server of a worker that `go test -fuzz` kills would keep the worker's pipes open, and the test would wait
// for ever.
func started(cmd *exec.Cmd, exited chan<- struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel watches the thread that started the server
		err := cmd.Start()
		result <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	return <-result
}
