package memory_test

import (
	"context"
	"fmt"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A Store in memory takes the place of Redis where one process is all there is.
func ExampleNew() {
	store := memory.New(nil)
	c := lease.Policy{}.ConfigFor([]lease.Limit{lease.PerHour(100)}, 0, 0)
	st, err := store.Configure(context.Background(), "k", lease.OpSet, c)
	fmt.Println(st.Levels[0], st.Config.TTL, err)
	// Output: 100 400ms <nil>
}
