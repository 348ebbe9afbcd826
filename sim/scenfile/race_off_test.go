//go:build !race

package scenfile

const raceEnabled = false
