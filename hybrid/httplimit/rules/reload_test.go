package rules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// limitedTo is a file in which one rule limits everybody.
func limitedTo(limit string) string {
	return fmt.Sprintf("rules: {all: {key: all, limits: [%s]}}\nroutes: {/: {rules: [all]}}\n", limit)
}

// opened are Rules that follow a file with this text, whose path is returned.
func (t *world) opened(text string, change ...func(*Config)) (*Rules, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, text)
	return t.open(path, change...), path
}

func (t *world) open(path string, change ...func(*Config)) *Rules {
	t.Helper()
	cfg, r := t.config(), (*Rules)(nil)
	cfg.OnReload = func(err error) {
		t.told = append(t.told, err)
		check(t, r.Status().Err == err, "%v was told, and the status is %v", err, r.Status().Err)
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	r, err = Open(path, cfg)
	noErr(t, err)
	t.Cleanup(func() { noErr(t, r.Shutdown(context.Background())) })
	return r
}

func write(t testing.TB, path, text string) {
	t.Helper()
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
}

// looked waits until the file was looked at again, and what it said was decided about.
func looked() {
	time.Sleep(interval + settle)
	synctest.Wait()
}

// inForce is the limit of the rule all.
func inForce(r *Rules) string { return r.Status().Table.Rules["all"].Limits[0].String() }

// However a file is replaced, its table is in force an interval later.
func TestAChangedFileComesIntoForce(t *testing.T) {
	ways := map[string]func(t *world, path, text string){
		"written in place": func(t *world, path, text string) { write(t, path, text) },
		"renamed, as editors do": func(t *world, path, text string) {
			write(t, path+".new", text)
			noErr(t, os.Rename(path+".new", path))
		},
		"removed and made again": func(t *world, path, text string) {
			noErr(t, os.Remove(path))
			time.Sleep(settle / 2)
			write(t, path, text)
		},
	}
	for name, replace := range ways {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *world) {
				r, path := t.opened(limitedTo("10/h"))
				h := r.Handler(ok)
				check(t, admitted(h, 50, 0, "GET /") == 10, "10/h is not in force")
				replace(t, path, limitedTo("30/h"))
				looked()
				told := len(t.told) == 1 && t.told[0] == nil && t.log.count("rules file in force") == 1
				check(t, inForce(r) == "30/h" && told, "%s is in force: %v\n%s", inForce(r), t.told, &t.log.text)
				replace(t, path, limitedTo("5/h"))
				looked()
				s := r.Status()
				check(t, inForce(r) == "5/h" && s.Reloaded == 2 && s.Refused == 0 && s.Err == nil, "%+v", s)
			})
		})
	}
}

// Kubernetes mounts a ConfigMap as links: rules.yaml -> ..data/rules.yaml, and ..data -> ..2026_01,
// which it swaps for a link to another folder.
func TestAConfigMapComesIntoForce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no link over another")
	}
	bubble(t, func(t *world) {
		dir := t.TempDir()
		in := func(name string) string { return filepath.Join(dir, name) }
		version := func(name, text string) {
			noErr(t, os.Mkdir(in(name), 0o700))
			write(t, filepath.Join(in(name), "rules.yaml"), text)
			noErr(t, os.Symlink(name, in("..data_tmp")))
			noErr(t, os.Rename(in("..data_tmp"), in("..data")))
		}
		version("..2026_01", limitedTo("10/h"))
		noErr(t, os.Symlink("..data/rules.yaml", in("rules.yaml")))
		r := t.open(in("rules.yaml"))
		version("..2026_02", limitedTo("30/h"))
		noErr(t, os.RemoveAll(in("..2026_01")))
		looked()
		check(t, inForce(r) == "30/h" && t.log.count("WARN") == 0, "%s is in force\n%s", inForce(r), &t.log.text)
	})
}

// A file that is being written in place, slowly, is not read early, although its beginning would be
// rules too.
func TestAFileIsNotReadByHalves(t *testing.T) {
	bubble(t, func(t *world) {
		r, path := t.opened(limitedTo("10/h"))
		time.Sleep(interval - settle - time.Millisecond)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		noErr(t, err)
		for line := range strings.Lines(limitedTo("30/h") + strings.Repeat("# and so on\n", 100)) {
			_, err = f.WriteString(line)
			noErr(t, err)
			must(t, inForce(r) == "10/h" && r.Status().Refused == 0, "%+v", r.Status())
			time.Sleep(settle / 2)
		}
		noErr(t, f.Close())
		looked()
		check(t, inForce(r) == "30/h" && t.log.count("WARN") == 0, "%s is in force\n%s", inForce(r), &t.log.text)
	})
}

// A file that cannot be used changes nothing. It is reported once, until it changes.
func TestAFileThatCannotBeUsed(t *testing.T) {
	bubble(t, func(t *world) {
		r, path := t.opened("version: 2\n" + limitedTo("10/h"))
		h := r.Handler(ok)
		refused := int64(0)
		bad := func(what string, want string, change func()) {
			change()
			for range 5 {
				looked()
			}
			refused++
			s := r.Status()
			check(t, s.Refused == refused && s.Err != nil && strings.Contains(s.Err.Error(), want), "%s: %+v", what, s)
			check(t, t.log.count("keeping the current rules") == int(refused) && len(t.told) == int(refused),
				"%s: %s", what, &t.log.text)
			check(t, inForce(r) == "10/h" && rulesOf(ask(h, "GET /")) == "all", "%s: other rules hold", what)
		}
		_, err := os.Stat(path + ".none")
		missing := err.(*os.PathError).Err.Error() // in the words of the system
		says := func(text string) func() { return func() { write(t, path, text) } }
		bad("no limit", `rules.yaml:1:34: rules.all.limits[0]: "10/fortnight"`, says(limitedTo("10/fortnight")))
		bad("another mistake", `rules.yaml:1:34: rules.all.limits[0]: "0/s"`, says(limitedTo("0/s")))
		bad("gone", missing, func() { noErr(t, os.Remove(path)) })
		bad("empty", "rules.yaml:1:1: is empty", says(""))
		bad("an older version", "version is 1, must be at least 2", says("version: 1\n"+limitedTo("30/h")))
		bad("a folder", "read "+path, func() {
			noErr(t, os.Remove(path))
			noErr(t, os.Mkdir(path, 0o700))
		})
		noErr(t, os.Remove(path))
		write(t, path, "version: 2\n"+limitedTo("10/h"))
		looked()
		s := r.Status()
		check(t, s.Err == nil && s.Refused == refused && t.told[len(t.told)-1] == nil, "%+v, told %v", s, t.told)
	})
}

// Reload reads the file at once. With an Interval below 0 only Reload does.
func TestReload(t *testing.T) {
	bubble(t, func(t *world) {
		r, path := t.opened(limitedTo("10/h"), func(c *Config) { c.Interval = -1 })
		write(t, path, limitedTo("30/h"))
		looked()
		check(t, inForce(r) == "10/h", "the file was read without Reload")
		noErr(t, r.Reload())
		check(t, inForce(r) == "30/h", "%s is in force", inForce(r))
		write(t, path, "routes: []")
		for range 2 {
			err := r.Reload()
			check(t, errors.Is(err, ErrInvalid) && inForce(r) == "30/h", "%v", err)
		}
		check(t, r.Status().Refused == 1, "%+v", r.Status())
		noErr(t, r.Shutdown(t.Context()))
		write(t, path, limitedTo("40/h"))
		check(t, errors.Is(r.Reload(), ErrClosed) && errors.Is(r.Set(Table{}), ErrClosed), "closed rules change")
	})
	bubble(t, func(t *world) {
		err := t.with("rules: {}").Reload()
		check(t, err != nil && strings.Contains(err.Error(), "no file to reload"), "%v", err)
	})
}

func TestOpenReportsWhatIsWrong(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none"), Config{Store: newWorld(t).store})
	check(t, errors.Is(err, os.ErrNotExist) && strings.HasPrefix(err.Error(), "rules: "), "%v", err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "rules: {a: {key: whom, limits: [1/x]}}")
	_, err = Open(path, Config{Store: newWorld(t).store})
	check(t, err != nil && strings.Contains(err.Error(), path+":1:18: rules.a.key: is") &&
		strings.Contains(err.Error(), path+`:1:33: rules.a.limits[0]: "1/x"`), "%v", err)
	_, err = Open(path, Config{})
	check(t, errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), "Config.Store is nil"), "%v", err)
}

// Shutdown ends everything and gives back the leases; a second one waits for it.
func TestShutdownEndsEverything(t *testing.T) {
	bubble(t, func(t *world) {
		r, _ := t.opened(limitedTo("1000/s"))
		h := r.Handler(ok)
		admitted(h, 500, time.Millisecond, "GET /")
		l := r.Limiters()["all"]
		check(t, l.Stats().Held > 0 && t.living() == 1, "%+v", l.Stats())
		noErr(t, r.Shutdown(t.Context()))
		noErr(t, r.Shutdown(t.Context()))
		noErr(t, r.Close())
		st := l.Stats()
		check(t, st.Held == 0 && st.Burnt == 0 && t.living() == 0, "%+v", st)
		check(t, ask(h, "GET /").Code == http.StatusServiceUnavailable, "closed rules admit")
	})
	bubble(t, func(t *world) {
		r, _ := t.opened(limitedTo("1000/s"))
		admitted(r.Handler(ok), 500, time.Millisecond, "GET /")
		noErr(t, r.Close())
		check(t, r.Limiters()["all"].Stats().Burnt > 0 && t.living() == 0, "Close has given back")
	})
	bubble(t, func(t *world) {
		gone := false // the end of a rule that was removed just before, and takes its time
		r := t.with(limitedTo("10/s"), func(c *Config) {
			c.OnLimiter = func(*hybrid.Limiter) func() { return func() { time.Sleep(time.Second); gone = true } }
		})
		t.changed(r, "rules: {}")
		synctest.Wait()
		noErr(t, r.Shutdown(t.Context()))
		check(t, gone, "Shutdown has not waited")
	})
}

// Settings that no route uses are logged once for each change, and are in force: a change may come in steps.
func TestSettingsThatNoRouteUsesAreLogged(t *testing.T) {
	bubble(t, func(t *world) {
		logged := func(want string) {
			t.Helper()
			line := `level=WARN msg="rules: no route uses these settings" ` + want
			once := t.log.count("no route uses") == 1 && t.log.count(line) == 1
			check(t, once, "%s\nis not\n%s", &t.log.text, line)
			t.log.text.Reset()
		}
		r, path := t.opened("trusted: [10.0.0.0/8]\n" + limitedTo("10/h"))
		logged(`settings=[trusted] count=1`)
		write(t, path, `
trusted: [10.0.0.0/8]
rules:
  old: {key: address, limits: [1/h]}
  all: {key: all, limits: [10/h], priorities: [0.5]}
routes: {/: {rules: [all]}, /free: {rules: [], cost: 3}}`)
		looked()
		logged(`settings="[routes[\"/free\"].cost rules.all.priorities rules.old trusted]" count=4`)
		check(t, len(r.Limiters()) == 2, "the table is not in force: %+v", r.Status())
		many := strings.Repeat(", r%d: {key: all, limits: [1/h]}", 20)
		for i := range 20 {
			many = strings.Replace(many, "%d", fmt.Sprint(i), 1)
		}
		t.changed(r, "rules: {all: {key: all, limits: [10/h]}"+many+"}\nroutes: {/: {rules: [all]}}")
		logged(`settings="[rules.r0 rules.r1 rules.r10 rules.r11 rules.r12 rules.r13 rules.r14 rules.r15 ` +
			`rules.r16 rules.r17]" count=20`)
		t.changed(r, `
trusted: [10.0.0.0/8]
rules: {all: {key: [route, address], limits: [10/h], priorities: [0.5], named: {192.0.2.1: [9/h]}}}
routes: {/: {rules: [all], class: 1}, /free: {rules: []}}`)
		check(t, t.log.count("no route uses") == 0, "all settings are used:\n%s", &t.log.text)
	})
}
