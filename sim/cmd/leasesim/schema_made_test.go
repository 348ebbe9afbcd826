package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// outputs are the types that the commands write with --out json. inspect and top write types of redisbucket.
var outputs = map[string]reflect.Type{
	"run":          reflect.TypeFor[sim.Report](),
	"compare":      reflect.TypeFor[sim.Report](),
	"replay":       reflect.TypeFor[sim.Report](),
	"sweep":        reflect.TypeFor[search.SweepReport](),
	"plan":         reflect.TypeFor[search.Plan](),
	"live":         reflect.TypeFor[live.Report](),
	"compare-live": reflect.TypeFor[sideBySide](),
}

// schema is a part of a JSON schema.
type schema map[string]any

// reportSchema is the schema of everything that --out json writes, made from the types that are
// written: #/$defs/COMMAND describes a command.
func reportSchema() schema {
	s := schemas{}
	commands := []schema{}
	for command, t := range outputs {
		s[command] = s.of(t)
	}
	for _, command := range slices.Sorted(maps.Keys(outputs)) {
		commands = append(commands, schema{"$ref": "#/$defs/" + command})
	}
	return schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "What leasesim writes with --out json",
		"description": "Each command's own schema is in $defs under its name; compare-live is compare --live.",
		"anyOf":       commands,
		"$defs":       map[string]schema(s),
	}
}

// schemas are those of structs, by the name of the type, and of commands, by theirs.
type schemas map[string]schema

// of returns the schema of a type as encoding/json writes it. It panics for a type that it does not know.
func (s schemas) of(t reflect.Type) schema {
	text := reflect.TypeFor[encoding.TextMarshaler]()
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t.Implements(text):
		return schema{"type": "string"}
	case t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(text):
		panic(fmt.Sprintf("%v writes itself", t))
	}
	switch kind := t.Kind(); kind {
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	case reflect.Pointer:
		return s.orNull(s.of(t.Elem()))
	case reflect.Slice:
		return s.orNull(schema{"type": "array", "items": s.of(t.Elem())})
	case reflect.Map:
		return s.orNull(schema{"type": "object", "additionalProperties": s.of(t.Elem())})
	case reflect.Struct:
		return s.object(t)
	default:
		if kind > reflect.Uint64 {
			panic(fmt.Sprintf("no schema of a %v", t))
		}
	}
	return schema{"type": "integer"}
}

func (s schemas) orNull(other schema) schema {
	return schema{"anyOf": []schema{other, {"type": "null"}}}
}

// object is a reference to the schema of a struct.
func (s schemas) object(t reflect.Type) schema {
	name := t.String() // as in report.Figure
	ref := schema{"$ref": "#/$defs/" + name}
	if s[name] != nil {
		return ref
	}
	properties, required := schema{}, []string{}
	s[name] = schema{"type": "object", "properties": properties, "additionalProperties": false}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" || !f.IsExported() || tag == "-" {
			continue // its own fields are there too
		}
		key, options, _ := strings.Cut(tag, ",")
		if key == "" {
			panic(fmt.Sprintf("%s.%s has no JSON key", name, f.Name))
		}
		properties[key] = s.of(f.Type)
		if options == "" {
			required = append(required, key)
		}
	}
	s[name]["required"] = required
	return ref
}
