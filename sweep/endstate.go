// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// names replaces what differs from run to run.
type names struct {
	replace   *strings.Replacer
	uids      map[string]string // the objects that had them
	generated []string          // names, and what replaces them
}

// namesOf learns the UIDs and the generated names of a run.
func namesOf(changes []change) names {
	n := names{uids: map[string]string{}}
	known := map[string]bool{}
	for _, c := range changes {
		if uid := string(c.object.GetUID()); uid != "" {
			n.uids[uid] = generic(c.object)
		}
		if g := c.object.GetGenerateName(); g != "" && !known[c.object.GetName()] {
			known[c.object.GetName()] = true
			n.generated = append(n.generated, c.object.GetName(), g+"*")
		}
	}
	return n.at(nil)
}

// at marks the UIDs of objects that are not in a state: a name may have been used before.
func (n names) at(s *State) names {
	now := map[string]bool{}
	if s != nil {
		for _, objects := range s.objects {
			for _, o := range objects {
				now[string(o.GetUID())] = true
			}
		}
	}
	pairs := slices.Clone(n.generated)
	for _, uid := range slices.Sorted(maps.Keys(n.uids)) {
		what := "uid of "
		if s != nil && !now[uid] {
			what = "uid of an earlier "
		}
		pairs = append(pairs, uid, what+n.uids[uid])
	}
	n.replace = strings.NewReplacer(pairs...)
	return n
}

// generic is the name of an object, without what is generated.
func generic(o *unstructured.Unstructured) string {
	name := o.GetName()
	if g := o.GetGenerateName(); g != "" {
		name = g + "*"
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + name
}

var timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)

// allocated are fields that the API server chooses.
var allocated = map[string]bool{"clusterIP": true, "clusterIPs": true, "nodePort": true}

// unordered are lists that have sets and maps.
var unordered = map[string]bool{"finalizers": true, "ownerReferences": true, "conditions": true}

func compareText(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

func (n names) value(v any, generation int64) any {
	switch x := v.(type) {
	case string:
		if timestamp.MatchString(x) {
			return "a time"
		}
		return n.replace.Replace(x)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			if allocated[k] {
				continue
			}
			if observed, ok := e.(int64); ok && k == "observedGeneration" {
				out[k] = observed == generation
				continue
			}
			out[n.replace.Replace(k)] = n.value(e, generation)
			if all, ok := out[k].([]any); ok && unordered[k] {
				slices.SortFunc(all, compareText)
			}
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = n.value(e, generation)
		}
		return out
	}
	return v
}

func (n names) object(o *unstructured.Unstructured) any {
	content := maps.Clone(o.Object)
	if m, ok := content["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		for _, f := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "name"} {
			delete(m, f)
		}
		content["metadata"] = m
	}
	return n.value(content, o.GetGeneration())
}

// judge fills what is compared, and checks what holds at every version.
func (r *run) judge() {
	did, s := &r.record, r.scenario
	n := namesOf(did.changes)
	fights := fights{}
	did.created, did.deleted = map[string]int{}, map[string]int{}
	state := &State{scheme: s.Scheme, objects: map[schema.GroupVersionKind]map[string]*unstructured.Unstructured{}, initial: map[*unstructured.Unstructured]bool{}}
	broken := map[string]bool{}
	for _, c := range did.changes {
		for len(did.states) < len(did.after) && c.compare(did.after[len(did.states)]) > 0 {
			did.states = append(did.states, n.state(state))
			clear(fights)
		}
		r.judgeAuthor(c, state, fights, n)
		state.apply(c)
		// Caches may show the end of an owner after the end of what it owned, which is then made
		// once more, and collected.
		switch {
		case c.kind == watch.Added && state.owned(c.object):
			did.created[generic(c.object)]++
		case c.kind == watch.Deleted && state.owned(c.object):
			did.deleted[generic(c.object)]++
		}
		if c.epoch > 0 {
			continue // a restore changes everything at once
		}
		for _, v := range s.Invariants {
			if err := holds(v, state); err != nil && !broken[v.Name] {
				broken[v.Name] = true
				did.failures = append(did.failures, fmt.Sprintf("the invariant %q is broken by %s: %v", v.Name, strings.TrimSpace(c.String()), err))
			}
		}
	}
	for len(did.states) < len(did.after) {
		did.states = append(did.states, n.state(state))
	}
}

// holds calls an invariant.
func holds(v Invariant, s *State) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return v.Holds(s)
}

// judgeAuthor looks for fields that two programs change to and fro.
func (r *run) judgeAuthor(c change, before *State, f fights, n names) {
	old := before.objects[c.object.GroupVersionKind()][c.object.GetNamespace()+"/"+c.object.GetName()]
	if old == nil || c.kind != watch.Modified || c.epoch > 0 {
		return
	}
	who := ""
	if a := r.versions[c.resource.Resource+" "+c.object.GetResourceVersion()]; a != nil {
		who = a.who
	}
	var all []difference
	diff("", "", n.object(old), n.object(c.object), &all)
	for _, problem := range f.change(generic(c.object), who, all) {
		r.fail("%s", problem)
	}
}

// state returns the objects by their generic names.
func (n names) state(s *State) map[string][]any {
	n = n.at(s)
	all := map[string][]any{}
	for _, objects := range s.objects {
		for _, o := range objects {
			key := generic(o)
			if s.initial[o] {
				all[key] = append(all[key], "as before") // control planes differ
				continue
			}
			all[key] = append(all[key], n.object(o))
		}
	}
	for _, same := range all {
		slices.SortFunc(same, compareText)
	}
	return all
}

// differences returns where the states after the steps differ. A run that has failed has fewer
// states.
func differences(s *Scenario, want, got *record) (all []difference) {
	for i := range min(len(want.states), len(got.states)) {
		for _, d := range stateDifferences(want.states[i], got.states[i]) {
			d.step = s.Steps[i].Name
			d.last = i == len(s.Steps)-1
			all = append(all, d)
		}
	}
	return all
}

func stateDifferences(want, got map[string][]any) (all []difference) {
	keys := slices.Sorted(maps.Keys(want))
	for key := range got {
		if _, ok := want[key]; !ok {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		a, b := want[key], got[key]
		if len(a) != len(b) {
			all = append(all, difference{key: key, got: objects(len(b)), want: objects(len(a)), missing: len(b) < len(a)})
			continue
		}
		for i := range a {
			diff(key, "", a[i], b[i], &all)
		}
	}
	return all
}

// difference is one value that differs.
type difference struct {
	key, path, got, want string
	missing              bool // it is not there
	step                 string
	last                 bool
}

func (d difference) String() string {
	return fmt.Sprintf("after step %s, %s%s is %s, and %s without faults", d.step, d.key, d.path, d.got, d.want)
}

func (d difference) place() string { return d.step + " " + d.key + d.path }

func objects(n int) string {
	switch n {
	case 0:
		return "absent"
	case 1:
		return "there"
	}
	return fmt.Sprintf("there %d times", n)
}

func diff(key, path string, want, got any, all *[]difference) {
	switch a := want.(type) {
	case map[string]any:
		b, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(a))
		for k := range b {
			if _, ok := a[k]; !ok {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			x, inA := a[k]
			y, inB := b[k]
			switch {
			case !inA:
				*all = append(*all, difference{key: key, path: path + "." + k, got: short(y), want: "absent"})
			case !inB:
				*all = append(*all, difference{key: key, path: path + "." + k, got: "absent", want: short(x), missing: true})
			default:
				diff(key, path+"."+k, x, y, all)
			}
		}
		return
	case []any:
		if b, ok := got.([]any); ok && len(a) == len(b) {
			for i := range a {
				diff(key, fmt.Sprintf("%s[%d]", path, i), a[i], b[i], all)
			}
			return
		}
	}
	if x, y := short(want), short(got); x != y {
		*all = append(*all, difference{key: key, path: path, got: y, want: x})
	}
}

func short(v any) string {
	s := fmt.Sprintf("%v", v)
	if _, ok := v.(string); ok {
		s = fmt.Sprintf("%q", v)
	}
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}
