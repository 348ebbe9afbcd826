package live

import (
	"fmt"
	"math"

	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// Class is what became of the requests of one class. Process i is of class i, counted around.
type Class struct {
	Headroom float64 `json:"headroom"`
	Offered  int64   `json:"offered"`
	Admitted int64   `json:"admitted"`
	// ExceededBy is by how much this class and those below it together exceed, in their worst window,
	// the bound of a bucket without the headroom.
	ExceededBy int64 `json:"exceeded_by"`
}

// headrooms are those of the classes: none for the first.
func (o Options) headrooms() []float64 { return append([]float64{0}, o.Priorities...) }

// classOf is the class of process i.
func (o Options) classOf(i int) int { return i % len(o.headrooms()) }

// classes audits each class. spans are the admissions of each process.
func (o Options) classes(processes []Process, spans [][]audit.Span) (all []Class, err error) {
	for p, headroom := range o.headrooms() {
		c := Class{Headroom: headroom}
		var below []audit.Span
		for i, one := range processes {
			if o.classOf(i) == p {
				c.Offered += one.Offered
				c.Admitted += one.Admitted
			}
			if o.classOf(i) >= p {
				below = append(below, spans[i]...)
			}
		}
		bound := audit.Of(o.limit(), o.Overcommit)
		bound.Burst -= int64(math.Ceil(float64(bound.Burst) * headroom))
		w, err := audit.Worst(below, bound)
		if err != nil {
			return nil, fmt.Errorf("leasesim: audit of class %d: %w", p, err)
		}
		c.ExceededBy = w.ExceededBy
		all = append(all, c)
	}
	return all, nil
}
