//go:build race

package network

import "time"

// away is how long the store is away: the race detector makes virtual time slow.
const away = 3 * time.Second
