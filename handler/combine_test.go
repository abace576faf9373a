// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestCombinations(t *testing.T) {
	x := map[string]string{"x": "x"}
	generations, labelled, both, neither := update(pod(), pod(generation(2))), update(pod(), pod(labels(x))), update(pod(), pod(labels(x), generation(2))), update(pod(), pod())
	create := handler.Event{Op: handler.Create, New: pod()}
	for _, c := range []struct {
		predicate handler.Predicate
		name      string
		keeps     []bool // of generations, labelled, both, neither, create
	}{
		{handler.And(handler.GenerationChanged, handler.LabelsChanged), "(generation changed and labels changed)", []bool{false, false, true, false, true}},
		{handler.Or(handler.GenerationChanged, handler.LabelsChanged), "(generation changed or labels changed)", []bool{true, true, true, false, true}},
		{handler.Not(handler.LabelsChanged), "not labels changed", []bool{true, false, false, true, false}},
		{handler.Not(handler.Or(handler.GenerationChanged, handler.LabelsChanged)), "not (generation changed or labels changed)", []bool{false, false, false, true, false}},
		{handler.Or(handler.And(handler.GenerationChanged, handler.LabelsChanged), handler.Not(handler.LabelsChanged)), "((generation changed and labels changed) or not labels changed)", []bool{true, false, true, true, true}},
		{handler.Named("the spec changed", handler.GenerationChanged), "the spec changed", []bool{true, false, true, false, true}},
		{handler.Not(handler.Named("relabelled", handler.LabelsChanged)), "not relabelled", []bool{true, false, false, true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.Equal(t, c.predicate.String(), c.name)
			for i, e := range []handler.Event{generations, labelled, both, neither, create} {
				testkit.Equal(t, c.predicate.Keep(e), c.keeps[i], fmt.Sprintf("event %d", i), "keep")
			}
		})
	}
}

// TestFiltersDoNotAllocate: they see every event, and are asked for their name when they drop one.
func TestFiltersDoNotAllocate(t *testing.T) {
	x := map[string]string{"x": "x"}
	e := update(pod(labels(x)), pod(labels(x), version("2")))
	nothing := handler.Where(func(_, _ *corev1.Pod) bool { return false })
	for _, f := range []handler.Predicate{
		handler.GenerationChanged, handler.LabelsChanged, handler.AnnotationsChanged, nothing, handler.Named("nothing", nothing),
		handler.Or(handler.GenerationChanged, handler.LabelsChanged, nothing), handler.And(handler.ResourceVersionChanged, handler.Not(handler.ResourceVersionChanged)),
	} {
		length := 0
		if n := testing.AllocsPerRun(100, func() {
			if !f.Keep(e) {
				length += len(f.String())
			}
		}); n != 0 || length == 0 {
			t.Errorf("%s: %v allocations, %d characters", f, n, length)
		}
	}
}

func TestFuncs(t *testing.T) {
	broken := errors.New("broken")
	all := handler.Funcs[*corev1.Pod, string]{
		Create: func(_ context.Context, p *corev1.Pod) ([]string, error) {
			return []string{"create " + p.ResourceVersion}, nil
		},
		Update: func(_ context.Context, before, after *corev1.Pod) ([]string, error) {
			return []string{"update " + before.ResourceVersion + after.ResourceVersion}, nil
		},
		Delete: func(_ context.Context, p *corev1.Pod) ([]string, error) {
			return []string{"delete " + p.ResourceVersion}, broken
		},
	}
	events := []handler.Event{{Op: handler.Create, New: pod()}, update(pod(), pod(version("2"))), {Op: handler.Delete, Old: pod(version("3"))}}
	for i, want := range []string{"[create 1] <nil>", "[update 12] <nil>", "[delete 3] broken"} {
		keys, err := all.Keys(t.Context(), events[i])
		testkit.Equal(t, fmt.Sprint(keys, " ", err), want)
		keys, err = handler.Funcs[*corev1.Pod, string]{}.Keys(t.Context(), events[i])
		testkit.Len(t, keys, 0, "of no function")
		testkit.Equal(t, err, nil, "of no function")
		if _, err := (handler.Funcs[*corev1.Secret, string]{
			Create: func(context.Context, *corev1.Secret) ([]string, error) { return nil, nil },
			Update: func(context.Context, *corev1.Secret, *corev1.Secret) ([]string, error) { return nil, nil },
			Delete: func(context.Context, *corev1.Secret) ([]string, error) { return nil, nil },
		}).Keys(t.Context(), events[i]); err == nil {
			t.Error("a pod was taken for a secret")
		}
	}
}

// TestMapDedupes: few keys and many; the mapper's slice is left alone.
func TestMapDedupes(t *testing.T) {
	for _, n := range []int{1, 5, 8, 9, 100} {
		kept := [][]int{make([]int, 0, 3*n), make([]int, 0, 3*n)}
		for i := range n {
			kept[0] = append(kept[0], i, i)
			kept[1] = append(kept[1], n/2+i)
		}
		before := [][]int{slices.Clone(kept[0]), slices.Clone(kept[1])}
		m := handler.Map(func(_ context.Context, p *corev1.Pod) ([]int, error) { return kept[p.Generation-1], nil })
		keys, err := m.Keys(t.Context(), update(pod(), pod(generation(2))))
		want := make([]int, n/2+n)
		for i := range want {
			want[i] = i
		}
		testkit.Equal(t, err, nil)
		testkit.SlicesEqual(t, keys, want)
		if !slices.Equal(kept[0], before[0]) || !slices.Equal(kept[1], before[1]) {
			t.Errorf("the mapper's keys became %v", kept)
		}
	}
}
