package hybridtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// A service denies payments while Redis is away. In a synctest bubble an outage of an hour takes no time.
func ExampleFaultyStore() {
	t := new(testing.T) // that of your test
	synctest.Test(t, func(t *testing.T) {
		store := &hybridtest.FaultyStore{Store: memory.New(nil)}
		payments, err := hybrid.New(store, hybrid.Config{
			Limits: []hybrid.Limit{hybrid.PerMinute(60)},
			Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer payments.Close()

		store.Away()
		fmt.Println("cold start:", payments.Allow("ann")) // Policy.ColdStart
		store.Back()
		time.Sleep(time.Second)
		fmt.Println("well:", payments.Allow("ann"))
		store.Away()
		time.Sleep(time.Hour)
		fmt.Println("away:", payments.Allow("ann"))
		store.Back()
		time.Sleep(time.Second)
		fmt.Println("back:", payments.Allow("ann"))
	})
	// Output:
	// cold start: false
	// well: true
	// away: false
	// back: true
}
