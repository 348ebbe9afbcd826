package ui

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Parts of the page.
const (
	calls    = `[...document.querySelectorAll('#figures dd')][3]?.firstChild.textContent ?? ''`
	finished = `document.getElementById('status').textContent.endsWith('Done')`
)

func TestAPageFollowsItsKnobs(t *testing.T) {
	b := browser(t)
	address := serve(t)
	// Given the page of a small fleet, with its final figures,
	b.open(address+"?rate=500&burst=500&seconds=10", 1280)
	b.until(finished)
	before := b.eval(calls)
	// when the slider of the target is moved by the keyboard,
	b.eval(`document.querySelector('[data-name=target_ms] [type=range]').focus()`)
	b.press("End", 35)
	b.press("ArrowLeft", 37)
	// then the field, the link and the figures follow, beside those of before;
	b.until(`document.getElementById('target_ms').value === '1500' && location.search.includes('target_ms=1500')`)
	b.until(finished)
	after := b.eval(calls)
	testkit.Check(t, after != before && strings.Contains(b.eval(`document.getElementById('figures').textContent`),
		"was "+before), "the figures are those of before: %s", after)
	testkit.Check(t, strings.Contains(b.eval(`document.getElementById('verdicts').textContent`),
		"A lease lasts 250ms, not the Target of 1.5s"), "nothing says that a lease is shorter")
	// and the link alone brings them back.
	b.open(b.eval(`location.href`), 1280)
	b.until(finished)
	testkit.Check(t, b.eval(calls) == after, "%s calls, then %s with the same link", after, b.eval(calls))
	testkit.Check(t, b.console() == "", "the console has\n%s", b.console())
}

// TestAPageCanBeRead on a desk and on a telephone. Nothing was loaded that its policy forbids: the console
// has none.
func TestAPageCanBeRead(t *testing.T) {
	b := browser(t)
	address := serve(t)
	for _, width := range []int{1280, 390} {
		b.open(address+"?rate=500&burst=500&fault=hang&load=2&seconds=10", width)
		b.until(finished)
		// The figures stay in view beside the last knob and the end of the page.
		for _, last := range []string{"#seconds", "#plan"} {
			b.eval(`document.querySelector('` + last + `').scrollIntoView({block: 'center'})`)
			at := b.eval(`(() => { const r = document.getElementById('figures').getBoundingClientRect()
				return r.top >= 0 && r.bottom < 0.25 * innerHeight && r.height > 40 })()`)
			testkit.Check(t, at == "true", "%d px: the figures are out of sight at %s", width, last)
		}
		b.eval(`for (const e of document.querySelectorAll('details')) e.open = true`)
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{
			"width": width, "height": 9000, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
		b.until(`innerHeight === 9000 && document.getElementById('yaml').textContent.includes('kind: hang')`)
		b.picture("ui", width)
		testkit.Check(t, b.unreadable() == "", "%s", b.unreadable())
	}
	testkit.Check(t, b.console() == "", "the console has\n%s", b.console())
}

// TestAPageIsUsedByKeyboard on a telephone: from the first field to a plan.
func TestAPageIsUsedByKeyboard(t *testing.T) {
	testkit.LongOnly(t) // TestAPageFollowsItsKnobs and the tests of the handlers hold in short runs
	b := browser(t)
	b.open(serve(t)+"?rate=200&burst=50&seconds=2", 390)
	b.until(finished)
	// Given a field that is reached by the tab key, when it gets a number that is not allowed,
	focus := `document.activeElement.id`
	for range 2 { // a slider and its field
		b.press("Tab", 9)
	}
	testkit.Must(t, b.eval(focus) == "processes", "the focus is at %q", b.eval(focus))
	b.eval(`document.activeElement.select()`)
	b.write("1.5")
	// then the allowed ones stand at the field,
	b.until(`!document.getElementById('processes-wrong').hidden`)
	testkit.Check(t, b.eval(`document.getElementById('processes-wrong').textContent`) ==
		`Processes is "1.5", must be a whole number`, "%s", b.eval(`document.getElementById('processes-wrong').textContent`))
	testkit.Check(t, b.eval(`document.activeElement.getAttribute('aria-invalid')`) == "true", "the field is not marked")
	// and go with the next number.
	b.eval(`document.activeElement.select()`)
	b.write("3")
	b.until(`document.getElementById('processes-wrong').hidden && ` + finished)
	// When the button of the plan is pressed, then its policy takes the place of the one at hand,
	b.eval(`set('target_ms', '1')`)
	b.until(finished)
	b.eval(`document.getElementById('plan').focus()`)
	b.press("Enter", 13)
	b.until(`document.querySelectorAll('#planOf table').length > 0 && document.getElementById('cancel').hidden`)
	b.eval(`document.getElementById('use').click()`)
	b.until(`document.getElementById('target_ms').value !== '1' && ` + finished)
	// and a second one can be cancelled.
	b.eval(`for (const [name, value] of [['seconds', '5000'], ['rate', '20000']]) set(name, value);
		document.getElementById('plan').click()`)
	b.until(`document.getElementById('planned').value > 0 || !document.getElementById('cancel').hidden`)
	b.eval(`document.getElementById('cancel').click()`)
	b.until(`document.getElementById('planning').textContent === 'Cancelled.' && document.getElementById('cancel').hidden`)
	testkit.Check(t, b.console() == "", "the console has\n%s", b.console())
}
