// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// generator makes random objects with fields that Thing does not have.
type generator struct {
	*rand.Rand

	last int // the number of the last unknown field
}

func (g *generator) text() string { return []string{"a", "b", "c/d", "e~f", "<g>", "é"}[g.IntN(6)] }

// unknown adds fields that the Go type does not have. Their values are unique.
func (g *generator) unknown(to map[string]any) map[string]any {
	for range g.IntN(2) {
		g.last++
		to["unknown/~"+g.text()] = []any{map[string]any{"value": g.last}}
	}
	return to
}

func (g *generator) leaf() map[string]any {
	m := g.unknown(map[string]any{})
	for _, k := range []string{"left", "right"} {
		if g.IntN(3) > 0 {
			m[k] = g.text()
		}
	}
	return m
}

func (g *generator) part(depth int) map[string]any {
	m := g.unknown(map[string]any{"size": g.Int64N(5) + 1<<60})
	add := func(k string, v func() any) {
		if g.IntN(3) == 0 {
			m[k] = v()
		}
	}
	add("name", func() any { return g.text() })
	add("on", func() any { return g.IntN(2) == 0 })
	add("port", func() any { return []any{80, "http", nil}[g.IntN(3)] })
	add("texts", func() any { return []any{g.text(), g.text(), g.text()}[:g.IntN(4)] })
	add("labels", func() any { return map[string]any{g.text(): g.text()} })
	add("zero", func() any { return g.leaf() })
	add("leaves", func() any {
		all := []any{}
		for range g.IntN(5) {
			all = append(all, g.leaf())
		}
		return all
	})
	if depth > 0 {
		add("one", func() any { return g.part(depth - 1) })
		add("a~/key", func() any { return map[string]any{g.text(): g.part(depth - 1)} })
		m["named"] = g.named(depth - 1)
	}
	return m
}

func (g *generator) named(depth int) []any {
	all := []any{}
	for i := range g.IntN(5) {
		p := g.part(depth)
		p["name"] = fmt.Sprint("n", i)
		all = append(all, p)
	}
	return all
}

// change changes a part at random.
func (g *generator) change(p *Part) {
	for range g.IntN(4) {
		switch g.IntN(10) {
		case 0:
			p.Size = g.Int64N(3)
		case 1:
			p.On = []*bool{nil, new(true), new(false)}[g.IntN(3)]
		case 2:
			p.Port = new(intstr.FromInt32(g.Int32N(9)))
		case 3:
			p.Texts = append(p.Texts, g.text())
			g.Shuffle(len(p.Texts), func(i, j int) { p.Texts[i], p.Texts[j] = p.Texts[j], p.Texts[i] })
		case 4:
			p.Labels = map[string]string{g.text(): g.text()}
		case 5:
			p.One = []*Part{nil, {Size: 7}, p.One}[g.IntN(3)]
			if p.One != nil {
				g.change(p.One)
			}
		case 6:
			p.Zero.Left = g.text()
		case 7:
			p.Named = changed(g, p.Named, Part{Name: "new" + g.text()}, g.change)
		case 8:
			p.Leaves = changed(g, p.Leaves, Leaf{Left: "new"}, func(l *Leaf) { l.Right = g.text() })
		case 9:
			for k, v := range p.ByKey {
				g.change(&v)
				p.ByKey[k] = v
			}
		}
	}
}

// changed inserts, removes, changes or moves elements of a list.
func changed[T any](g *generator, list []T, one T, change func(*T)) []T {
	list = slices.Clone(list)
	for range g.IntN(4) {
		i := 0
		if len(list) > 0 {
			i = g.IntN(len(list))
		}
		switch {
		case len(list) == 0 || g.IntN(4) == 0:
			list = slices.Insert(list, i, one)
		case g.IntN(3) == 0:
			list = slices.Delete(list, i, i+1)
		case g.IntN(2) == 0:
			change(&list[i])
		default:
			g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
	return list
}

func parse(t *testing.T, text []byte) *Thing {
	t.Helper()
	o := &Thing{}
	testkit.NoError(t, json.Unmarshal(text, o))
	return o
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	testkit.NoError(t, err)
	return string(text)
}

// defaulted applies the patch of a defaulter to an object. It returns also what set has made.
func defaulted(t *testing.T, raw []byte, set func(*Thing)) (patched []byte, want string) {
	t.Helper()
	w := newHooks()
	webhook.AddDefaulter(w, func(_ context.Context, o *Thing) error {
		set(o)
		want = encode(t, o)
		return nil
	}, webhook.Registration{})
	response := ask(t, handlerOf(t, w), defaultPath, request(admissionv1.Create, string(raw), ""))
	if !response.Allowed {
		t.Fatal(response.Result)
	}
	if response.Patch == nil {
		return raw, want
	}
	testkit.Equal(t, *response.PatchType, admissionv1.PatchTypeJSONPatch)
	patch, err := jsonpatch.DecodePatch(response.Patch)
	testkit.NoError(t, err)
	patched, err = patch.Apply(raw)
	testkit.NoError(t, err, fmt.Sprintf("object %s patch %s", raw, response.Patch))
	return patched, want
}

func thingOf(spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec}
}

// TestDefault_KeepsFieldsThatTheTypeDoesNotHave changes random objects at random.
func TestDefault_KeepsFieldsThatTheTypeDoesNotHave(t *testing.T) {
	for seed := range uint64(500) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a test
		raw := []byte(encode(t, thingOf(g.part(3))))
		patched, want := defaulted(t, raw, func(o *Thing) { g.change(&o.Spec) })
		if got := encode(t, parse(t, patched)); got != want {
			t.Fatalf("seed %d:\nobject  %s\npatched %s\nis      %s\nwants   %s", seed, raw, patched, got, want)
		}
		before, after := elements(t, raw), elements(t, patched)
		for typed, object := range before {
			if now, ok := after[typed]; ok && object != "" && now != "" && now != object {
				t.Fatalf("seed %d:\nthe element  %s\nhas become   %s\nof the object %s\n%s", seed, object, now, raw, patched)
			}
		}
	}
}

// elements returns the elements of the object's lists, without the values of unknown lists, by path
// of the list and typed value. An element whose typed value is not unique is empty.
func elements(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var v any
	testkit.NoError(t, json.Unmarshal(text, &v))
	found := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, one := range v {
				walk(path+"/"+k, one)
			}
		case []any:
			if strings.Contains(path, "unknown") || strings.HasSuffix(path, "/texts") {
				return
			}
			for _, one := range v {
				key := path + " " + encode(t, typed(t, one))
				if _, twice := found[key]; twice {
					found[key] = ""
				} else {
					found[key] = encode(t, one)
				}
			}
		}
	}
	walk("", v)
	return found
}

// typed returns a value without unknown fields.
func typed(t *testing.T, v any) any {
	t.Helper()
	var p struct {
		Part
		Leaf
	}
	testkit.NoError(t, json.Unmarshal([]byte(encode(t, v)), &p))
	return p
}

func TestDefault_ListsKeepTheFieldsOfEachElement(t *testing.T) {
	const old = `[{"left":"a","x":1},{"left":"b","x":2},{"left":"c","right":"r","x":3}]`
	for name, c := range map[string]struct {
		set  func(l []Leaf) []Leaf
		want string
	}{
		"an insertion": {
			func(l []Leaf) []Leaf { return slices.Insert(l, 1, Leaf{Left: "new"}) },
			`[{"left":"a","x":1},{"left":"new"},{"left":"b","x":2},{"left":"c","right":"r","x":3}]`,
		},
		"a removal":        {func(l []Leaf) []Leaf { return l[1:] }, `[{"left":"b","x":2},{"left":"c","right":"r","x":3}]`},
		"another order":    {func(l []Leaf) []Leaf { slices.Reverse(l); return l }, `[{"left":"c","right":"r","x":3},{"left":"b","x":2},{"left":"a","x":1}]`},
		"a change":         {func(l []Leaf) []Leaf { l[1].Left = "B"; return l }, `[{"left":"a","x":1},{"left":"B","x":2},{"left":"c","right":"r","x":3}]`},
		"a shifted change": {func(l []Leaf) []Leaf { l[2].Right = "R"; return l[1:] }, `[{"left":"b","x":2},{"left":"c","right":"R","x":3}]`},
		"a replacement":    {func(l []Leaf) []Leaf { return []Leaf{{Left: "z"}} }, `[{"left":"z"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			patched, _ := defaulted(t, []byte(`{"spec":{"size":1,"leaves":`+old+`}}`), func(o *Thing) { o.Spec.Leaves = c.set(o.Spec.Leaves) })
			var got, want any
			testkit.NoError(t, json.Unmarshal(patched, &got))
			testkit.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"test.example.com/v1","kind":"Thing","metadata":{},"spec":{"size":1,"leaves":`+c.want+`}}`), &want))
			got.(map[string]any)["metadata"] = map[string]any{}
			testkit.DeepEqual(t, got, want, fmt.Sprintf("it is %s", patched))
		})
	}
}

// TestDefault_AddsOnlyWhatTheFunctionHasSet: the Go type encodes spec.size although it is zero.
func TestDefault_AddsOnlyWhatTheFunctionHasSet(t *testing.T) {
	raw := []byte(`{"apiVersion":"test.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	patched, _ := defaulted(t, raw, func(o *Thing) { o.Spec.Name = "n" })
	testkit.Contains(t, string(patched), `"spec":{"name":"n"}`)
}

func TestDefault_NoChangeIsNoPatch(t *testing.T) {
	raw := []byte(`{"apiVersion":"test.example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"unknown":1e400,"size":1}}`)
	patched, _ := defaulted(t, raw, func(*Thing) {})
	testkit.Equal(t, string(patched), string(raw))
}

func TestDefault_NumbersKeepTheirDigits(t *testing.T) {
	raw := []byte(encode(t, thingOf(map[string]any{
		"size": 1, "leaves": []any{map[string]any{"left": "a", "x": 1 << 62}, map[string]any{"left": "b", "x": json.RawMessage("0.10")}},
	})))
	patched, _ := defaulted(t, raw, func(o *Thing) { slices.Reverse(o.Spec.Leaves) })
	testkit.Contains(t, string(patched), `[{"left":"b","x":0.10},{"left":"a","x":4611686018427387904}]`)
}
