package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

// policy demands limits and a policy that are valid, and that a bucket can be configured with.
func (c *checker) policy() {
	if n := len(c.Limits); n < 1 || n > lease.LimitsMax {
		c.bad("limits", "there are %d, must be 1 to %d", n, lease.LimitsMax)
	}
	for i, l := range c.Limits {
		c.joined(elem("limits", i), l.Validate(), lease.ErrInvalidLimit)
	}
	c.ofPolicy("policy", c.Policy.Validate())
	if !c.together {
		return
	}
	config := c.Policy.ConfigFor(c.Limits, 0, max(c.CallTimeout, 0))
	for _, m := range unjoined(config.Validate(), lease.ErrInvalidConfig) {
		path := "policy"
		var i int
		if _, err := fmt.Sscanf(m, "limit %d:", &i); err == nil {
			path = elem("limits", i)
			_, m, _ = strings.Cut(m, ": ")
			m = strings.TrimPrefix(m, lease.ErrInvalidLimit.Error()+": ")
		}
		if field, rest, _ := strings.Cut(m, " "); isOfPolicy(field) {
			path, m = "policy."+FieldName(field), rest
		}
		c.bad(path, "%s", InFile(m))
	}
}

// ofPolicy adds what lease.Policy.Validate says of the fields of a section. Every message begins
// with the name of one.
func (c *checker) ofPolicy(section string, err error) {
	for _, m := range unjoined(err, lease.ErrInvalidPolicy) {
		field, rest, _ := strings.Cut(m, " ")
		c.bad(section+"."+FieldName(field), "%s", InFile(rest))
	}
}

func isOfPolicy(field string) bool {
	_, yes := reflect.TypeFor[lease.Policy]().FieldByName(field)
	return yes
}

// leaseNames are the fields of lease.Limit and lease.Policy where a message names them.
var leaseNames = regexp.MustCompile(
	`\b(Tokens|Per|Burst|Offset|Target|TTL|MinBatch|MaxBatch|Overcommit|Weight)\b`)

// InFile is a message of package lease in the words of a scenario file: its fields have the file's
// names, and 0 is not offered as the default, because a file leaves such a field out.
func InFile(message string) string {
	message = strings.ReplaceAll(message, "must be 0 (default) or ", "must be ")
	return leaseNames.ReplaceAllStringFunc(message, func(name string) string {
		if name == "Per" {
			return "period"
		}
		return FieldName(name)
	})
}

// joined adds the errors that err joins.
func (c *checker) joined(path string, err, sentinel error) {
	for _, m := range unjoined(err, sentinel) {
		c.bad(path, "%s", InFile(m))
	}
}

// unjoined is the texts of the errors that err joins, each without the prefix of sentinel.
func unjoined(err, sentinel error) (texts []string) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, e := range errs {
		if e != nil {
			texts = append(texts, strings.TrimPrefix(e.Error(), sentinel.Error()+": "))
		}
	}
	return texts
}
