package sweep

import (
	"context"
	"runtime"
	"sync"
)

// Each calls do for 0 to n-1, up to parallel at one time (0 means GOMAXPROCS), the lower numbers first. Once ctx has
// ended or a call returned an error, no further one starts; Each waits for those that run, and returns the error of the
// lowest number that has one.
func Each(ctx context.Context, parallel, n int, do func(i int) error) error {
	if parallel <= 0 {
		parallel = runtime.GOMAXPROCS(0)
	}
	errs := make([]error, n)
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		next    int
		failed  bool
	)
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed || next == n || ctx.Err() != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(parallel, n) {
		workers.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if errs[i] = do(i); errs[i] != nil {
					mu.Lock()
					failed = true
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
