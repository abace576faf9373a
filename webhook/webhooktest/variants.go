// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"
)

// change is the change of one field. The value absent is a field that is not there.
type change struct {
	path     []string // names and indexes
	from, to any
}

func (c change) String() string {
	return fmt.Sprintf("%s: %s to %s", strings.Join(c.path, "."), text(c.from), text(c.to))
}

type variants struct {
	scheme *runtime.Scheme
	random *rand.Rand
	fill   func(obj any)

	special, common dictionary
}

// dictionary has values to try, by the name of the field. The name "" is all fields.
type dictionary struct {
	numbers map[string][]int64
	strings map[string][]string
}

func newDictionary() dictionary { return dictionary{map[string][]int64{}, map[string][]string{}} }

// of returns the values for a field. An element of a list has the name of the list.
func (d dictionary) of(path []string) ([]int64, []string) {
	name := ""
	for _, part := range path {
		if _, err := strconv.Atoi(part); err != nil {
			name = part
		}
	}
	return slices.Concat(d.numbers[""], d.numbers[name]), slices.Concat(d.strings[""], d.strings[name])
}

func (d dictionary) sort() {
	for name, all := range d.numbers {
		slices.Sort(all)
		d.numbers[name] = slices.Compact(all)
	}
	for name, all := range d.strings {
		slices.Sort(all)
		d.strings[name] = slices.Compact(all)
	}
}

// newVariants collects the values of examples and those in the expressions of policies.
func newVariants(scheme *runtime.Scheme, policies, examples []*unstructured.Unstructured, seed int64) *variants {
	v := &variants{scheme: scheme, random: rand.New(rand.NewSource(seed)), special: newDictionary(), common: newDictionary()} //nolint:gosec // for tests
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(scheme))                    //nolint:gosec // for tests
	filler.NumElements(0, 3)
	v.fill = filler.Fill
	v.special.numbers[""], v.special.strings[""], v.common.numbers[""] = []int64{0}, []string{""}, []int64{-1, 1, 2}
	for _, u := range policies {
		walk(u.Object, nil, func(path []string, value any) {
			if text, ok := value.(string); ok && path[len(path)-1] == "expression" {
				v.learn(text)
			}
		})
	}
	for _, u := range examples {
		walk(u.Object, nil, func(path []string, value any) {
			switch value := value.(type) {
			case int64:
				v.common.numbers[""] = append(v.common.numbers[""], value-1, value, value+1)
			case string:
				if changeable(path) {
					v.common.strings[""] = append(v.common.strings[""], value)
				}
			}
		})
	}
	v.special.sort()
	v.common.sort()
	return v
}

// Parts of CEL: a literal is a number or a string.
var (
	literal    = regexp.MustCompile(`\b\d+|'[^']*'|"[^"]*"`)
	identifier = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// maxLength is the length of the longest string that is made for a number in an expression.
const maxLength = 1000

// learn collects the literals of an expression, and what is next to them. They are special for the
// fields that the expression names.
func (v *variants) learn(expression string) {
	var numbers []int64
	var texts []string
	for _, found := range literal.FindAllString(expression, -1) {
		n, err := strconv.ParseInt(found, 10, 64)
		if err != nil {
			texts = append(texts, found[1:len(found)-1])
			continue
		}
		numbers = append(numbers, n-1, n, n+1)
		for length := max(n-1, 0); length <= min(n+1, maxLength); length++ {
			texts = append(texts, strings.Repeat("a", int(length)))
		}
	}
	for _, name := range identifier.FindAllString(expression, -1) {
		v.special.numbers[name] = append(v.special.numbers[name], numbers...)
		v.special.strings[name] = append(v.special.strings[name], texts...)
	}
	v.common.numbers[""] = append(v.common.numbers[""], numbers...)
	v.common.strings[""] = append(v.common.strings[""], texts...)
}

// changeable reports whether a field may change: neither the status nor metadata other than labels
// and annotations.
func changeable(path []string) bool {
	switch path[0] {
	case "apiVersion", "kind", "status":
		return false
	case "metadata":
		return len(path) > 1 && (path[1] == "labels" || path[1] == "annotations")
	}
	return true
}

func walk(value any, at []string, visit func(path []string, value any)) {
	step := func(name string, child any) {
		path := append(at[:len(at):len(at)], name)
		visit(path, child)
		walk(child, path, visit)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			step(name, value[name])
		}
	case []any:
		for i, child := range value {
			step(strconv.Itoa(i), child)
		}
	}
}

// of returns changes of an example: first likely ones of one field, then others, then some of two
// or three fields.
func (v *variants) of(example *unstructured.Unstructured, count int) (all [][]change) {
	likely, others := v.singles(example)
	first := max(count*3/5, count*4/5-len(others))
	singles := slices.Concat(likely[:min(len(likely), first)], others)
	for _, c := range singles[:min(len(singles), count*4/5)] {
		all = append(all, []change{c})
	}
	for range min(count/5, len(singles)) {
		some := make([]change, 2+v.random.Intn(2))
		for i := range some {
			some[i] = singles[v.random.Intn(len(singles))]
		}
		all = append(all, some)
	}
	return all
}

// singles returns changes of one field, shuffled. The fields come from the example and from random
// objects of its type. Likely changes remove the field or set it to a special value.
func (v *variants) singles(example *unstructured.Unstructured) (likely, others []change) {
	seen := map[string]bool{}
	fill := v.filled(example)
	for _, from := range []map[string]any{example.Object, fill, v.filled(example), v.filled(example)} {
		walk(from, nil, func(path []string, _ any) {
			path = present(example.Object, path)
			if !changeable(path) || seen[strings.Join(path, "\x00")] {
				return
			}
			seen[strings.Join(path, "\x00")] = true
			now, random := get(example.Object, path), get(from, path)
			if random == (absent{}) || reflect.DeepEqual(now, random) {
				random = get(fill, path)
			}
			for _, to := range v.special.values(path, now, random) {
				likely = append(likely, change{path, now, to})
			}
			for _, to := range v.common.values(path, now, random) {
				others = append(others, change{path, now, to})
			}
		})
	}
	for _, all := range []*[]change{&likely, &others} {
		*all = slices.DeleteFunc(*all, func(c change) bool { return reflect.DeepEqual(c.from, c.to) })
		v.random.Shuffle(len(*all), func(i, j int) { (*all)[i], (*all)[j] = (*all)[j], (*all)[i] })
	}
	return likely, others
}

// present returns the part of a path that ends at the first field that is not there.
func present(object map[string]any, path []string) []string {
	for i := range path {
		if get(object, path[:i+1]) == (absent{}) {
			return path[:i+1]
		}
	}
	return path
}

// applied returns an object with changes, and the changes that have an effect.
func applied(object map[string]any, changes []change) (changed map[string]any, effective []change) {
	for _, c := range changes {
		c.from = get(object, c.path)
		next, _ := set(object, c.path, c.to).(map[string]any)
		if !reflect.DeepEqual(next, object) {
			object, effective = next, append(effective, c)
		}
	}
	return object, effective
}

// filled returns a random object of an example's Go type, or nil.
func (v *variants) filled(example *unstructured.Unstructured) (object map[string]any) {
	obj, err := v.scheme.New(example.GroupVersionKind())
	if err != nil {
		return nil
	}
	v.fill(obj)
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(encoded, &object) // it was encoded here
	return object
}

// values returns values for a field that is now or, if it is absent, may be random.
func (d dictionary) values(path []string, now, random any) []any {
	like := now
	if like == (absent{}) {
		like = random
	}
	all := []any{absent{}, random}
	numbers, texts := d.of(path)
	switch like := like.(type) {
	case bool:
		all = append(all, !like)
	case int64, float64:
		for _, n := range numbers {
			all = append(all, n)
		}
	case string:
		for _, s := range texts {
			all = append(all, s)
		}
	case []any:
		all = append(all, []any{})
		for _, n := range numbers {
			if n > 0 && n <= 100 && len(like) > 0 {
				all = append(all, repeated(like, int(n)))
			}
		}
	case map[string]any:
		all = append(all, map[string]any{})
		base, _ := now.(map[string]any)
		if onlyStrings(like) {
			for _, key := range texts {
				all = append(all, with(base, key, "a"))
			}
		}
	}
	return all
}

func onlyStrings(object map[string]any) bool {
	for _, value := range object {
		if _, ok := value.(string); !ok {
			return false
		}
	}
	return true
}

func with(object map[string]any, key string, value any) map[string]any {
	more := map[string]any{}
	maps.Copy(more, object)
	more[key] = value
	return more
}

// repeated returns a list of a length with the elements of another.
func repeated(list []any, length int) []any {
	long := make([]any, length)
	for i := range long {
		long[i] = list[i%len(list)]
	}
	return long
}

// get returns a field, or absent.
func get(value any, path []string) any {
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			child, ok := v[name]
			if !ok {
				return absent{}
			}
			value = child
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return absent{}
			}
			value = v[i]
		default:
			return absent{}
		}
	}
	return value
}

// set returns a copy with another value of a field. It returns value if there is no place for the
// field.
func set(value any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v[path[0]]; !ok && len(path) > 1 {
			return v
		}
		child := set(v[path[0]], path[1:], to)
		v = maps.Clone(v)
		if v[path[0]] = child; child == (absent{}) {
			delete(v, path[0])
		}
		return v
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i > len(v) || i == len(v) && len(path) > 1 {
			return v
		}
		if i == len(v) {
			v = append(v[:i:i], absent{})
		}
		child := set(v[i], path[1:], to)
		v = slices.Clone(v)
		if v[i] = child; child == (absent{}) {
			v = slices.Delete(v, i, i+1)
		}
		return v
	}
	return value
}
