package rules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/safetext"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
)

// settle is the time for which a changed file must stay the same before it comes into force. A file that is
// written in place is incomplete for a while.
const settle = 100 * time.Millisecond

type file struct {
	path string // empty if the Rules come from New
	stop chan struct{}
	done sync.WaitGroup
	last reading // argument of the last decide; guarded by Rules.mu
}

// reading is the text of a file or, if it cannot be read, the error.
type reading struct{ text, failure string }

func read(path string) reading {
	text, err := readAll(path)
	if err != nil {
		return reading{failure: err.Error()}
	}
	return reading{text: string(text)}
}

func readAll(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, yamlfile.TextMax+1))
}

// Open returns Rules with the table in a YAML or JSON file, and reads the file again every Config.Interval.
// Open returns the errors of New, with the lines of the file, or an error of reading the file.
//
// Each read opens the file by its path, so the file may be replaced, as Kubernetes replaces the files of a
// ConfigMap. If the file becomes invalid or unreadable, the rules in force stay. The error is logged once;
// Status and Config.OnReload report it too.
func Open(path string, cfg Config) (*Rules, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	text, err := readAll(path)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	t, err := parse(path, text, cfg.Base, cfg.named())
	if err != nil {
		return nil, err
	}
	r, err := New(t, cfg)
	if err != nil {
		return nil, err
	}
	r.file.path, r.file.stop, r.file.last = path, make(chan struct{}), reading{text: string(text)}
	if every := cfg.Interval; every >= 0 {
		if every == 0 {
			every = interval
		}
		r.file.done.Go(func() { r.watch(every) })
	}
	return r, nil
}

// watch calls decide after each change of the file.
func (r *Rules) watch(every time.Duration) {
	for r.file.sleep(every) {
		now := read(r.file.path)
		r.mu.Lock()
		changed := now != r.file.last
		r.mu.Unlock()
		// A file that changes within settle is still being written: the loop reads the file again later.
		if changed && r.file.sleep(min(settle, every)) && read(r.file.path) == now {
			_ = r.decide(now) // Status and Config.OnReload report the error
		}
	}
}

// sleep returns true after d, or false at a call of close.
func (f *file) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-f.stop:
		return false
	}
}

// Reload reads the file now, for example after a SIGHUP. Reload returns an error if the file is invalid or
// unreadable, or if the Rules come from New or are closed.
func (r *Rules) Reload() error {
	if r.file.path == "" {
		return errors.New("rules: no file to reload: the Rules come from New")
	}
	return r.decide(read(r.file.path))
}

// decide puts the rules in a reading into force, or returns an error. decide calls Config.OnReload if the
// reading is new.
func (r *Rules) decide(now reading) error {
	r.mu.Lock()
	isNews := now != r.file.last && !r.isClosed
	err := r.decideLocked(now)
	r.mu.Unlock()
	if isNews && r.cfg.OnReload != nil {
		r.cfg.OnReload(err)
	}
	return err
}

func (r *Rules) decideLocked(now reading) error {
	if r.isClosed {
		return ErrClosed
	}
	if now == r.file.last {
		return r.status.Err
	}
	r.file.last = now
	var t Table
	err := errors.New("rules: " + now.failure)
	if now.failure == "" {
		t, err = parse(r.file.path, []byte(now.text), r.cfg.Base, r.cfg.named())
	}
	if err == nil {
		err = r.changeLocked(t)
	}
	_ = r.recordLocked(err)
	if err != nil {
		r.logger().Warn("rules: invalid rules file; keeping the current rules",
			"file", r.file.path, "error", safetext.Error(err))
	} else {
		r.logger().Info("rules: changed rules file in force", "file", r.file.path,
			"version", t.Version, "rules", len(t.Rules), "routes", len(t.Routes))
	}
	return err
}

func (f *file) close() {
	if f.stop != nil {
		close(f.stop)
		f.done.Wait()
	}
}
