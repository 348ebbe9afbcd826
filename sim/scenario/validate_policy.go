package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

// policy demands limits and a policy that are valid, and that a bucket can be configured with.
func (c *checker) policy() {
	if n := len(c.Limits); n < 1 || n > lease.LimitsMax {
		c.bad("limits", "there are %d, must be 1 to %d", n, lease.LimitsMax)
	}
	for i, l := range c.Limits {
		c.adopt(elem("limits", i), l.Validate())
	}
	c.adopt("policy", c.Policy.Validate())
	if c.together {
		c.adopt("policy", c.Policy.ConfigFor(c.Limits, 0, max(c.CallTimeout, 0)).Validate())
	}
}

// adopt adds the faults that err, of package lease or about a quantity, names. A message that begins
// with a field of lease.Policy is about that field of the section.
func (c *checker) adopt(section string, err error) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, e := range errs {
		if e == nil || slices.Contains(sentinels, e) {
			continue
		}
		path, m := section, withoutSentinels.Replace(e.Error())
		var i int
		if _, err := fmt.Sscanf(m, "limit %d:", &i); err == nil {
			path = elem("limits", i)
			_, m, _ = strings.Cut(m, ": ")
		}
		field, rest, _ := strings.Cut(m, " ")
		if _, ok := reflect.TypeFor[lease.Policy]().FieldByName(field); ok {
			path, m = section+"."+FieldName(field), rest
		}
		c.bad(path, "%s", InFile(m))
	}
}

var (
	sentinels = []error{lease.ErrInvalidLimit, lease.ErrInvalidPolicy, lease.ErrInvalidConfig}
	// withoutSentinels removes their names, of which a file's reader knows nothing.
	withoutSentinels = strings.NewReplacer(lease.ErrInvalidLimit.Error()+": ", "", ErrQuantity.Error()+": ", "",
		lease.ErrInvalidPolicy.Error()+": ", "", lease.ErrInvalidConfig.Error()+": ", "")
	// leaseNames are the fields of lease.Limit and lease.Policy where a message names them.
	leaseNames = regexp.MustCompile(
		`\b(Tokens|Per|Burst|Offset|Target|TTL|MinBatch|Overcommit|Weight)\b`)
)

// InFile is a message of package lease, or about a quantity, in the words of a scenario file: its
// fields have the file's names, and 0 is not offered as the default: a file leaves such a field out.
func InFile(message string) string {
	message = strings.ReplaceAll(withoutSentinels.Replace(message), "must be 0 (default) or ", "must be ")
	return leaseNames.ReplaceAllStringFunc(message, func(name string) string {
		if name == "Per" {
			return "period"
		}
		return FieldName(name)
	})
}
