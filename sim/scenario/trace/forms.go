package trace

import (
	"bufio"
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// Parts of patterns: the client's address, or a list of which the first is the client's (X-Forwarded-For),
// and what follows the two names in an access log. Others add fields behind it.
const (
	client = `(?P<host>[^\s,]+)(?:, ?[^\s,]+)*`
	rest   = ` (?P<user>[^[]+) \[(?P<time>[^]]+)\] ` +
		`"(?P<request>(?P<method>[^ "\\]*)(?: (?P<path>[^ ?"\\]*))?(?:[^"\\]|\\.)*)" (?P<status>\S+) (?P<bytes>\S+)` +
		`(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?`
)

// logForms are the lines of access logs: the common format and the combined one, after the virtual host or
// without it. The names of the groups are the fields. The first form that matches counts.
var logForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?P<vhost>[^\s,]+) ` + client + ` (?P<ident>-)` + rest),
	regexp.MustCompile(`^` + client + ` (?P<ident>\S+)` + rest),
}

// logFields are the names in logForms.
var logFields = func() (all []string) {
	for _, form := range logForms {
		for _, name := range form.SubexpNames() {
			if name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}()

// otherKinds are the beginnings of files that are no trace, with what to do.
var otherKinds = []struct{ begin, kind string }{
	{"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with zstd -d"},
	{"\xfd7zXZ", "is compressed by xz; unpack it with xz -d"},
	{"BZh", "is compressed by bzip2; unpack it with bzip2 -d"},
	{"{", "is JSON; jq makes CSV of it, see leasesim replay --help"},
	{"metric_name,timestamp,", "has the metrics of k6; keep its first line and those that begin with http_reqs, with " +
		"--columns time_s=timestamp"},
}

// kindOf tells the kind of a file by its beginning: other is what a file that is no trace is, and isLog says
// that one of the first lines is that of an access log.
func kindOf(from *bufio.Reader) (other string, isLog bool) {
	start, _ := from.Peek(1 << 14)
	for _, o := range otherKinds {
		if bytes.HasPrefix(start, []byte(o.begin)) {
			return o.kind, false
		}
	}
	return "", slices.ContainsFunc(bytes.SplitN(start, []byte("\n"), 20), func(line []byte) bool {
		_, ok := logLine(string(line))
		return ok
	})
}

// logLine returns the fields of a line of an access log by their names. A field that is empty is left out.
func logLine(line string) (fields map[string]string, ok bool) {
	line = strings.Trim(line, "\x00 \t\r") // zeros stand where a log was cut while it was written
	for _, form := range logForms {
		if found := form.FindStringSubmatch(line); found != nil {
			fields = map[string]string{}
			for i, name := range form.SubexpNames() {
				if name != "" && found[i] != "" {
					fields[name] = found[i]
				}
			}
			return fields, true
		}
	}
	return nil, false
}
