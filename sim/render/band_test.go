package render

import (
	"strings"
	"testing"
)

func TestABandIsFilledBetweenItsEnds(t *testing.T) {
	line := Line{X: []float64{1, 2, 3, 4, 5, 6}, Y: []float64{1, 2, 3, 4, 5, 6}, Low: []float64{0, 1, nan, 3, 4, 5}, High: []float64{2, 3, 4, 5, 6, 7}, Shade: 1}
	// Given a gap in the middle, then there are two bands, in the line's shade and faint,
	svg, _ := drawn(t, Lines{Lines: []Line{line}})
	if got := strings.Count(svg, `"fill:`+nth(1).variable()+`;fill-opacity:0.17`); got != 2 {
		t.Errorf("%d bands in %s", got, svg)
	}
	// in every shade;
	for shade := range seriesCount {
		line.Shade = shade
		if svg, _ := drawn(t, Lines{Lines: []Line{line}}); strings.Count(svg, nth(shade).variable()+`;fill-opacity`) != 2 {
			t.Errorf("shade %d: %s", shade, svg)
		}
	}
	// and on a logarithmic axis, only where it can be shown.
	if svg, _ := drawn(t, Lines{LogY: true, Lines: []Line{line}}); strings.Count(svg, "fill-opacity") != 1 {
		t.Errorf("%s", svg)
	}
	line.High = line.High[1:]
	if _, err := (Lines{Lines: []Line{line}}).picture(); err == nil {
		t.Error("a band that is shorter than its line is drawn")
	}
}
