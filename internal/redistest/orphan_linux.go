package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// started starts cmd and returns. The server is killed when this process ends in any way. `go test -fuzz`
// kills workers: their servers would live on. The servers inherit the pipes by which a worker reports, so the
// test would wait for them for ever.
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
