package trace

import (
	"bufio"
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// client matches the client's address, or a list of addresses (X-Forwarded-For) whose first is the client's.
// rest matches the fields after the two names in an access log. Some servers add fields at the end.
const (
	client = `(?P<host>[^\s,]+)(?:, ?[^\s,]+)*`
	rest   = ` (?P<user>[^[]+) \[(?P<time>[^]]+)\] ` +
		`"(?P<request>(?P<method>[^ "\\]*)(?: (?P<path>[^ ?"\\]*))?(?:[^"\\]|\\.)*)" (?P<status>\S+) (?P<bytes>\S+)` +
		`(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?`
)

// logForms has the lines of access logs: the common and the combined format, with or without a virtual host
// before the line. The names of the groups are the field names. The first form that matches a line counts.
var logForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?P<vhost>[^\s,]+) ` + client + ` (?P<ident>-)` + rest),
	regexp.MustCompile(`^` + client + ` (?P<ident>\S+)` + rest),
}

// logFields lists the field names in logForms.
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

// otherKinds lists the first bytes of files that are not traces, with advice to the user.
var otherKinds = []struct{ begin, kind string }{
	{"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with zstd -d"},
	{"\xfd7zXZ", "is compressed by xz; unpack it with xz -d"},
	{"BZh", "is compressed by bzip2; unpack it with bzip2 -d"},
	{"{", "is JSON; jq makes CSV of it, see leasesim replay --help"},
	{"metric_name,timestamp,", "has the metrics of k6; keep its first line and those that begin with http_reqs, with " +
		"--columns time_s=timestamp"},
}

// kindOf detects the kind of a file by its first lines. other describes a file that is no trace, and isLog
// reports whether a line has the form of an access log.
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

// logLine returns the fields of an access log's line by name, without empty fields.
func logLine(line string) (fields map[string]string, ok bool) {
	line = strings.Trim(line, "\x00 \t\r") // a log that was cut during a write has zeros
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
