package lease_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Whatever cannot be held exactly is refused, and the error names what can.
func ExampleLimit_Validate() {
	fmt.Println(lease.PerSecond(100).Validate())
	err := lease.Limit{Tokens: 1, Per: time.Second, Burst: -1}.Validate()
	fmt.Println(errors.Is(err, lease.ErrInvalidLimit))
	// Output:
	// <nil>
	// true
}

// A Policy's zero value is a good default; every violation of another one is named at once.
func ExamplePolicy_Validate() {
	fmt.Println(lease.Policy{}.Validate())
	fmt.Println(lease.Policy{Target: time.Second, TTL: time.Second, MinBatch: -5}.Validate())
	// Output:
	// <nil>
	// lease: invalid policy: TTL is 1s, must be at least 2s, two targets
	// lease: invalid policy: MinBatch is -5, must be at least 1
}
