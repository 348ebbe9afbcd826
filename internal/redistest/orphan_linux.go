package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// started starts cmd, a server, and returns. The kernel kills the server when this process ends in any way.
// `go test -fuzz` kills workers. The server of a killed worker would keep the pipes open by which the worker
// reports, so the test would wait for ever.
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
