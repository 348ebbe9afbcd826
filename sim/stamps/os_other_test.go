//go:build !(linux || darwin || freebsd || openbsd || dragonfly || solaris)

package stamps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOtherSystemsSayThatTheyCannot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stamps")
	if _, err := Create(path, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Create: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Create leaves a file: %v", err)
	}
	if err := os.WriteFile(path, make([]byte, headerSize+recordSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Open: %v", err)
	}
	if _, err := NewStamper(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("NewStamper: %v", err)
	}
}
