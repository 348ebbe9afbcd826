package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestARequestUnderWayIsAnsweredBeforeTheEnd: the context ends amid a request; end is called after it.
func TestARequestUnderWayIsAnsweredBeforeTheEnd(t *testing.T) {
	said, output := io.Pipe()
	defer log.SetOutput(log.Writer())
	log.SetOutput(output)
	log.SetFlags(0)
	ctx, stop := context.WithCancel(t.Context())
	ended, answered := make(chan error), false
	go func() {
		ended <- Serve(ctx, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			stop()
			<-ctx.Done()
			answered = true
			w.WriteHeader(http.StatusAccepted)
		}), func(context.Context) error {
			testkit.Check(t, answered, "it ends before the answer")
			return io.ErrUnexpectedEOF
		})
	}()
	var url string
	_, err := fmt.Fscanf(said, "serving at %s\n", &url)
	testkit.NoErr(t, err)
	answer, err := http.Get(url)
	testkit.NoErr(t, err)
	testkit.NoErr(t, answer.Body.Close())
	testkit.Check(t, answer.StatusCode == http.StatusAccepted, "%s", answer.Status)
	err = <-ended
	testkit.Check(t, errors.Is(err, io.ErrUnexpectedEOF), "the error of end is lost: %v", err)
}
