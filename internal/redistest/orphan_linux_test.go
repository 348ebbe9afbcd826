package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// parentVariable is set in a process that starts a server, says its address and waits.
const parentVariable = "YUZHI_REDISTEST_PARENT"

func TestAServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	if os.Getenv(parentVariable) != "" {
		fmt.Println(Start(t).Addr)
		_, _ = io.ReadAll(os.Stdin)
		return
	}
	Require(t)
	// Given a process that has started a server,
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), parentVariable+"=1")
	stdin, err := cmd.StdinPipe()
	testkit.NoErr(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	testkit.NoErr(t, err)
	testkit.NoErr(t, cmd.Start())
	var addr string
	_, err = fmt.Fscanln(stdout, &addr)
	testkit.NoErr(t, err)
	c, err := net.Dial("tcp", addr)
	testkit.NoErr(t, err)
	c.Close()
	// when it is killed,
	testkit.NoErr(t, cmd.Process.Kill())
	_ = cmd.Wait()
	// then the server is gone, too.
	testkit.Eventually(t, "a server that is gone", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}
