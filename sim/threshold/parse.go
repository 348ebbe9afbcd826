package threshold

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// depthMax is how deep parentheses and signs may nest: more than anybody writes, and little stack.
const depthMax = 100

type kind int

const (
	end kind = iota
	number
	name
	operator // also parentheses, and what is no part of the language
)

// token is a piece of the text.
type token struct {
	kind       kind
	text       string
	start, end int // in characters from 0
}

// parser reads by recursive descent, one token ahead.
type parser struct {
	text   []rune
	token  token
	depth  int
	rivals []string
}

func (p *parser) errorAt(column int, format string, args ...any) error {
	return fmt.Errorf("%w: column %d: "+format, append([]any{ErrSyntax, column + 1}, args...)...)
}

func (p *parser) unexpected(want string) error {
	if p.token.kind == end {
		return p.errorAt(p.token.start, "it ends where %s should be", want)
	}
	return p.errorAt(p.token.start, "%q where %s should be", p.token.text, want)
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
func isName(r rune) bool  { return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// next reads the next token.
func (p *parser) next() {
	i := p.token.end
	for i < len(p.text) && (p.text[i] == ' ' || p.text[i] == '\t' || p.text[i] == '\n' || p.text[i] == '\r') {
		i++
	}
	at := func(i int) rune {
		if i < len(p.text) {
			return p.text[i]
		}
		return 0
	}
	j, k := i, operator
	switch r := at(i); {
	case i == len(p.text):
		k = end
	case isDigit(r) || r == '.' && isDigit(at(i+1)):
		k = number
		for isDigit(at(j)) || at(j) == '.' {
			j++
		}
		if e := at(j); e == 'e' || e == 'E' {
			sign := 0
			if s := at(j + 1); s == '+' || s == '-' {
				sign = 1
			}
			if isDigit(at(j + 1 + sign)) {
				for j += 1 + sign; isDigit(at(j)); j++ {
				}
			}
		}
		if at(j) == '%' {
			j++
		}
	case isName(r):
		k = name
		for isName(at(j)) || isDigit(at(j)) || at(j) == '.' || at(j) == ':' {
			j++
		}
	default:
		j++
		if two := string(r) + string(at(j)); slices.Contains([]string{"<=", ">=", "==", "!=", "&&", "||"}, two) {
			j++
		}
	}
	p.token = token{k, string(p.text[i:j]), i, j}
}

// is reports whether the next token is one of these operators.
func (p *parser) is(operators ...string) bool {
	return p.token.kind == operator && slices.Contains(operators, p.token.text)
}

// nested counts a level of recursion; the caller counts down again.
func (p *parser) nested() error {
	p.depth++
	if p.depth > depthMax {
		return p.errorAt(p.token.start, "nested deeper than %d", depthMax)
	}
	return nil
}

// either is a number or a condition, of which the other is nil: what a parenthesis holds shows only at its end.
type either struct {
	value     value
	condition condition
	start     int
}

// condition reads a condition up to the end of the text.
func (p *parser) condition() (condition, error) {
	e, err := p.or()
	switch {
	case err != nil:
	case p.token.kind != end:
		err = p.unexpected("an operator or the end")
	case e.condition == nil:
		err = p.errorAt(e.start, "a number where a comparison should be, like bound_exceeded_by.worst == 0")
	}
	return e.condition, err
}

func (p *parser) or() (either, error)  { return p.chain("||", p.and) }
func (p *parser) and() (either, error) { return p.chain("&&", p.comparison) }

// chain reads one or more conditions with op between them.
func (p *parser) chain(op string, part func() (either, error)) (either, error) {
	first, err := part()
	if err != nil || !p.is(op) {
		return first, err
	}
	parts := []either{first}
	for p.is(op) {
		p.next()
		e, err := part()
		if err != nil {
			return e, err
		}
		parts = append(parts, e)
	}
	all := make([]condition, len(parts))
	for i, e := range parts {
		if e.condition == nil {
			return e, p.errorAt(e.start, "a number where %s needs a comparison", op)
		}
		all[i] = e.condition
	}
	first.value, first.condition = nil, conjunction(all)
	if op == "||" {
		first.condition = disjunction(all)
	}
	return first, nil
}

// comparison reads a sum, or two of them and how they compare.
func (p *parser) comparison() (either, error) {
	left, err := p.sum()
	if err != nil || !p.is("<", "<=", ">", ">=", "==", "!=") {
		return left, err
	}
	op := p.token
	p.next()
	right, err := p.sum()
	if err != nil {
		return right, err
	}
	for _, side := range []either{left, right} {
		if side.value == nil {
			return side, p.errorAt(side.start, "a condition where %s needs a number", op.text)
		}
	}
	if p.is("<", "<=", ">", ">=", "==", "!=") {
		return left, p.errorAt(p.token.start, "a second comparison: write a < b && b < c")
	}
	text := func(from, to int) string { return strings.TrimSpace(string(p.text[from:to])) }
	left.condition = comparison{
		op: op.text, left: left.value, right: right.value,
		leftText: text(left.start, op.start), rightText: text(right.start, p.token.start),
	}
	left.value = nil
	return left, nil
}

func (p *parser) sum() (either, error)     { return p.arithmetic([]string{"+", "-"}, p.product) }
func (p *parser) product() (either, error) { return p.arithmetic([]string{"*", "/"}, p.unary) }

// arithmetic reads one or more numbers with ops between them, from left to right.
func (p *parser) arithmetic(ops []string, part func() (either, error)) (either, error) {
	left, err := part()
	if err != nil {
		return left, err
	}
	for p.is(ops...) {
		op := p.token
		p.next()
		right, err := part()
		if err != nil {
			return right, err
		}
		for _, side := range []either{left, right} {
			if side.value == nil {
				return side, p.errorAt(side.start, "a condition where %s needs a number", op.text)
			}
		}
		left.value = binary{op.text, left.value, right.value}
	}
	return left, nil
}

// unary reads a number, a name or a parenthesis, with or without signs.
func (p *parser) unary() (either, error) {
	if err := p.nested(); err != nil {
		return either{}, err
	}
	defer func() { p.depth-- }()
	e := either{start: p.token.start}
	switch {
	case p.is("-"):
		p.next()
		inner, err := p.unary()
		if err != nil {
			return e, err
		}
		if inner.value == nil {
			return e, p.errorAt(inner.start, "a condition where - needs a number")
		}
		e.value = negative{inner.value}
		return e, nil
	case p.is("("):
		p.next()
		inner, err := p.or()
		if err != nil {
			return e, err
		}
		if !p.is(")") {
			return e, p.unexpected("a closing parenthesis")
		}
		p.next()
		inner.start = e.start
		return inner, nil
	case p.token.kind == number:
		text, percent := strings.CutSuffix(p.token.text, "%")
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return e, p.errorAt(e.start, "%q is not a number", p.token.text)
		}
		if percent {
			x /= 100
		}
		e.value = point(x)
	case p.token.kind == name:
		v, err := p.name(p.token)
		if err != nil {
			return e, err
		}
		e.value = v
	default:
		return e, p.unexpected("a number or the name of a figure")
	}
	p.next()
	return e, nil
}

// name reads the name of a figure: FIGURE, FIGURE.PART, rival.NAME.FIGURE or rival.NAME.FIGURE.PART.
func (p *parser) name(t token) (value, error) {
	known, text := Names(), t.text
	var f figure
	rest, ofRival := strings.CutPrefix(text, "rival.")
	if ofRival {
		// A rival's name may have points of its own, as in settle_afterwards:2.5ms: read from the end.
		known, text = RivalNames(), rest
		if i := strings.LastIndexByte(text, '.'); i >= 0 && slices.Contains(figureParts, text[i+1:]) {
			text, f.part = text[:i], text[i+1:]
		}
		i := strings.LastIndexByte(text, '.')
		if i < 1 {
			return nil, p.errorAt(t.start, "%q: a rival's figure is rival.NAME.FIGURE", t.text)
		}
		f.rival, text = text[:i], text[i+1:]
		p.rivals = append(p.rivals, f.rival)
	} else if i := strings.IndexByte(text, '.'); i >= 0 {
		text, f.part = text[:i], text[i+1:]
		if slices.Contains(known, text) && !slices.Contains(figureParts, f.part) {
			return nil, p.errorAt(t.start, "%q: after %s there is one of .%s", t.text, text, strings.Join(figureParts, ", ."))
		}
	}
	f.name = text
	if !slices.Contains(known, f.name) {
		return nil, p.errorAt(t.start, "%q is not a figure: there are %s", f.name, strings.Join(known, ", "))
	}
	return f, nil
}
