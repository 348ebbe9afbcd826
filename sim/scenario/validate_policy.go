package scenario

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// policy checks that limits and policy are valid, and together make a valid configuration of a bucket.
func (c *checker) policy() {
	if n := len(c.Limits); n < 1 || n > lease.LimitsMax {
		c.Add("limits", c.Limits, "must have 1 to %d", lease.LimitsMax)
	}
	for i, l := range c.Limits {
		c.adopt(elem("limits", i), l.Validate())
	}
	c.adopt("policy", c.Policy.Validate())
	if c.together {
		c.adopt("policy", c.Policy.ConfigFor(c.Limits, 0, max(c.CallTimeout, 0)).Validate())
	}
}

// adopt adds the violations in err to the violations of a section of the file.
func (c *checker) adopt(section string, err error) {
	c.Adopt(err, func(path string) string {
		path = violation.Rename(path, FieldName)
		if strings.HasPrefix(path, "limits[") {
			return path
		}
		return violation.Under(section)(path)
	})
}
