package testkit

// PlainOrRace returns plain, or race where the race detector watches.
func PlainOrRace[T any](plain, race T) T {
	if RaceEnabled {
		return race
	}
	return plain
}
