// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/setpoint-dev/setpoint/hook"
)

// TestWith checks every function of every struct by reflection: With calls both functions in order,
// or the only one, or is nil without any.
func TestWith(t *testing.T) {
	for _, of := range []any{&hook.Queue{}, &hook.Controller{}, &hook.Source{}, &hook.Cache{}, &hook.Client{}, &hook.LeaderElection{}, &hook.Shards{}, &hook.Events{}, &hook.Webhook{}} {
		kind := reflect.TypeOf(of)
		t.Run(kind.String(), func(t *testing.T) {
			for i := range kind.Elem().NumField() {
				field := kind.Elem().Field(i).Name
				for _, have := range [][]string{{}, {"first"}, {"second"}, {"first", "second"}} {
					var told []string
					make := func(name string) reflect.Value {
						hooks := reflect.New(kind.Elem())
						if slices.Contains(have, name) {
							f := hooks.Elem().Field(i)
							f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
								told = append(told, name)
								var results []reflect.Value
								for n := range f.Type().NumOut() {
									results = append(results, reflect.Zero(f.Type().Out(n)))
								}
								return results
							}))
						}
						return hooks
					}
					f := part(in(make("first")).With(in(make("second"))), kind).Elem().Field(i)
					if len(have) > 0 && !f.IsNil() {
						var args []reflect.Value
						for n := range f.Type().NumIn() {
							args = append(args, reflect.Zero(f.Type().In(n)))
						}
						f.Call(args)
					}
					if !slices.Equal(told, have) || len(have) == 0 && !f.IsNil() {
						t.Errorf("%s of %v: told %v", field, have, told)
					}
				}
			}
			none, some := hook.Hooks{}, in(reflect.New(kind.Elem()))
			for _, pair := range [][2]hook.Hooks{{none, some}, {some, none}, {some, some}} {
				if pair[0].With(pair[1]) != some {
					t.Errorf("%v with %v is another", pair[0], pair[1])
				}
			}
			if none.With(none) != none {
				t.Error("none with none is some")
			}
		})
	}
}

// in returns Hooks with one part, which a points to.
func in(a reflect.Value) (h hook.Hooks) {
	reflect.ValueOf(&h).Elem().FieldByName(a.Type().Elem().Name()).Set(a)
	return h
}

// part returns the part of h with the type kind.
func part(h hook.Hooks, kind reflect.Type) reflect.Value {
	return reflect.ValueOf(h).FieldByName(kind.Elem().Name())
}

// TestWith_PartsInCommonAreCalledOnce, also if a part without functions is combined in between.
func TestWith_PartsInCommonAreCalledOnce(t *testing.T) {
	n := 0
	some := hook.Hooks{Queue: &hook.Queue{Taken: func(hook.QueueTaken) { n++ }}}
	empty := hook.Hooks{Queue: &hook.Queue{}}
	empty.With(some).With(some).With(empty).With(some).Queue.Taken(hook.QueueTaken{})
	if n != 1 {
		t.Errorf("called %d times, want once", n)
	}
}

// TestWith_ReconcilingPassesTheContextOn: the second hook gets the context of the first, and a hook
// that returns nil leaves it as it is.
func TestWith_ReconcilingPassesTheContextOn(t *testing.T) {
	type key struct{}
	adds := func(name string) hook.Hooks {
		return hook.Hooks{Controller: &hook.Controller{Reconciling: func(ctx context.Context, _ string) context.Context {
			before, _ := ctx.Value(key{}).(string)
			return context.WithValue(ctx, key{}, before+name)
		}}}
	}
	none := hook.Hooks{Controller: &hook.Controller{Reconciling: func(context.Context, string) context.Context { return nil }}}
	for want, h := range map[string]hook.Hooks{
		"ab": adds("a").With(adds("b")), "a": adds("a").With(none), "b": none.With(adds("b")), "abc": adds("a").With(none).With(adds("b").With(adds("c"))),
	} {
		if got := h.Controller.Reconciling(t.Context(), "website").Value(key{}); got != want {
			t.Errorf("the context has %v, want %s", got, want)
		}
	}
}
