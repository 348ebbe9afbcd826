package file

import (
	"fmt"
	"reflect"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Difference is a field, and its values in two scenarios as a file has them, a list in one line. A
// section that only one of them has is "there" and "left out".
type Difference struct{ Path, First, Second string }

// Differences are all fields in which two scenarios differ, in the order of Paths. A field that was
// not set is its zero value: compare what Defaults returns. Lists of different lengths are one
// difference.
func Differences(first, second scenario.Scenario) []Difference {
	return differences("", reflect.ValueOf(first), reflect.ValueOf(second))
}

func differences(path string, a, b reflect.Value) (all []Difference) {
	isPointer, isList := a.Kind() == reflect.Pointer, a.Kind() == reflect.Slice
	switch {
	case isPointer && a.IsNil() != b.IsNil():
		is := map[bool]string{true: "left out", false: "there"}
		return []Difference{{path, is[a.IsNil()], is[b.IsNil()]}}
	case isPointer && a.IsNil():
		return nil
	case isPointer:
		return differences(path, a.Elem(), b.Elem())
	case isList && a.Len() == b.Len():
		for i := range a.Len() {
			all = append(all, differences(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))...)
		}
	case isList || isScalar(a.Type()):
		if first, second := inOneLine(a), inOneLine(b); first != second {
			return []Difference{{path, first, second}}
		}
	default:
		for _, f := range fieldsOf(a.Type()) {
			all = append(all, differences(join(path, f.name), a.Field(f.index), b.Field(f.index))...)
		}
	}
	return all
}
