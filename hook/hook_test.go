// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInformerState(t *testing.T) {
	for want, s := range map[string]hook.InformerState{
		"Pod.v1: synced": {Kind: "Pod.v1", Phase: hook.Synced},
		"Site.v1.example.com: waiting for its API: not served": {Kind: "Site.v1.example.com", Phase: hook.Waiting, Err: errors.New("not served")},
	} {
		testkit.Equal(t, s.String(), want)
	}
}

// TestJoin: observers are called in order, each once, also if one panics.
func TestJoin(t *testing.T) {
	var told []string
	on := func(name string) *hook.Hook { return hook.On(func(*hook.Slow) { told = append(told, name) }) }
	a, b, c := on("a"), on("b"), on("c")
	all := hook.New(func(hook.Event) { told = append(told, "all") })
	bad := hook.On(func(*hook.Slow) { panic("bad") })
	for name, x := range map[string]struct {
		hook *hook.Hook
		want []string
	}{
		"none":      {nil, nil},
		"nil":       {hook.Join(nil, nil), nil},
		"one":       {hook.Join(nil, a), []string{"a"}},
		"some":      {hook.Join(a, all, c), []string{"a", "all", "c"}},
		"twice":     {hook.Join(a, hook.Join(b, a), b), []string{"a", "b"}},
		"a panic":   {hook.Join(a, bad, b, bad, c), []string{"a", "b", "c"}},
		"unchanged": {a, []string{"a"}},
	} {
		told = nil
		func() {
			defer func() { _ = recover() }()
			x.hook.Send(&hook.Slow{})
		}()
		testkit.SlicesEqual(t, told, x.want, name)
		told = nil
		x.hook.Send(&hook.GaveUp{})
		if len(told) > 0 && !slices.Equal(told, []string{"all"}) {
			t.Errorf("%s: another event told %v", name, told)
		}
		testkit.Equal(t, hook.Gets[*hook.Slow](x.hook), len(x.want) > 0, name, "it gets the event")
	}
	if hook.Gets[*hook.GaveUp](a) || !hook.Gets[*hook.GaveUp](all) || hook.Join(nil, a, nil, a) != a {
		t.Error("a hook for one type gets another event, or Join makes a new one needlessly")
	}
}

// TestSend_AllocatesNothing: also with two observers.
func TestSend_AllocatesNothing(t *testing.T) {
	n := 0
	h := hook.Join(hook.On(func(*hook.QueueTaken) { n++ }), hook.New(func(hook.Event) { n++ }))
	e := &hook.QueueTaken{}
	testkit.Equal(t, testing.AllocsPerRun(100, func() { h.Send(e) }), 0)
	testkit.Equal(t, n, 202)
}
