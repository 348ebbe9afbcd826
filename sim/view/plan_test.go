package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAPlanOverTooShortATimeSaysWhatWouldDo(t *testing.T) {
	p := planned(t)
	for enough, want := range map[float64]bool{0: false, 95: true} {
		p.EnoughS = enough
		var b bytes.Buffer
		testkit.NoErr(t, Plan(p, "", "leasesim plan").Write(&b, "table"))
		said := strings.Contains(strings.Join(strings.Fields(b.String()), " "), "Plan again with --duration 1m35s.")
		testkit.Check(t, said == want, "%v s: said %v\n%s", enough, said, b.String())
	}
}
