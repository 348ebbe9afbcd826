//go:build !race

package network

import "time"

// away is how long the store is away.
const away = 10 * time.Second
