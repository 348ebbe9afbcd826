package file

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInvalid is wrapped by every error about what a scenario file, an assignment or a path says.
var ErrInvalid = errors.New("file: invalid scenario")

// Error is one thing that is wrong, and where.
type Error struct {
	File         string // "" for an assignment or a path
	Line, Column int    // from 1, the column in characters; 0 without File
	Path         string // of the field; "" for the file as a whole
	Message      string

	cause error // nil, or what else errors.Is finds
}

// Error is "file:line:column: path: message", without the parts that are not there.
func (e *Error) Error() string {
	var parts []string
	if e.File != "" {
		parts = append(parts, fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	return strings.Join(append(parts, e.Message), ": ")
}

// Unwrap is ErrInvalid and the cause.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, e.cause}
}

// position is where something stands in the file.
type position struct{ line, column int }

// inOrder joins errors in the order of their places.
func inOrder(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}
