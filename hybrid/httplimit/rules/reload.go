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

// settle is how long a file must say the same before it is believed, so that one that is written in
// place is not read by halves.
const settle = 100 * time.Millisecond

// file is the file that Rules were opened with.
type file struct {
	path string // empty where there is none
	stop chan struct{}
	done sync.WaitGroup
	last reading // that was decided about; guarded by Rules.mu
}

// reading is what a file said, or why it could not be read.
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

// Open returns Rules with the table in a file, in YAML or JSON, and follows that file: every
// Config.Interval it reads it again. Errors are those of New, each with its line, or of opening the
// file.
//
// The file is found by its path each time, so an editor or a deployment may put another one in its
// place, as Kubernetes does with the files of a ConfigMap. What cannot be used changes nothing: the
// rules of before hold, the log says why once, Status and Config.OnReload tell it.
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

// watch decides about what the file says whenever that has changed.
func (r *Rules) watch(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.file.stop:
			return
		}
		now := read(r.file.path)
		r.mu.Lock()
		changed := now != r.file.last
		r.mu.Unlock()
		if !changed {
			continue
		}
		select {
		case <-time.After(min(settle, every)):
		case <-r.file.stop:
			return
		}
		if read(r.file.path) == now { // otherwise somebody is writing it, and the next tick looks again
			_ = r.decide(now) // which has told everybody
		}
	}
}

// Reload reads the file now, such as at a SIGHUP, and returns why it is not in force. It is for
// Rules that Open has made.
func (r *Rules) Reload() error {
	if r.file.path == "" {
		return errors.New("rules: there is no file to reload")
	}
	return r.decide(read(r.file.path))
}

// decide brings what was read into force, or says why not, and tells everybody of news.
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
	_ = r.tellLocked(err)
	if err != nil {
		r.logger().Warn("rules: the file cannot be used, and the rules of before hold",
			"file", r.file.path, "error", safetext.Error(err))
	} else {
		r.logger().Info("rules: the file has changed, and is in force", "file", r.file.path,
			"version", t.Version, "rules", len(t.Rules), "routes", len(t.Routes))
	}
	return err
}

// close ends watch.
func (f *file) close() {
	if f.stop != nil {
		close(f.stop)
		f.done.Wait()
	}
}
