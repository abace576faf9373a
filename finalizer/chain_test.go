// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const first, second, third = "example.com/first", "example.com/second", "example.com/third"

var page = types.NamespacedName{Namespace: "default", Name: "page"}

func configMap(finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: page.Namespace, Name: page.Name, Finalizers: finalizers}}
}

func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	testkit.NotEqual(t, err, nil)
	for _, w := range words {
		testkit.ErrorContains(t, err, w)
	}
}

// steps makes steps that record their calls and return results[finalizer].
type steps struct {
	calls   []string
	results map[string]error
}

func (s *steps) step(name string) finalizer.Step[*corev1.ConfigMap] {
	return finalizer.Step[*corev1.ConfigMap]{Finalizer: name, Run: func(_ context.Context, obj *corev1.ConfigMap) error {
		if obj.DeletionTimestamp == nil {
			return errors.New("the object is not in deletion")
		}
		s.calls = append(s.calls, name)
		return s.results[name]
	}}
}

func (s *steps) took() string {
	calls := strings.ReplaceAll(strings.Join(s.calls, " "), "example.com/", "")
	s.calls = nil
	return calls
}

func handle(t *testing.T, api *sim.Server) *client.Handle[*corev1.ConfigMap] {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	return client.For[*corev1.ConfigMap](c)
}

func TestChain_RunsTheStepsInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		h, ctx, s := handle(t, api), t.Context(), &steps{results: map[string]error{}}
		chain, err := finalizer.NewChain(h, s.step(first), s.step(second), s.step(third))
		testkit.NoError(t, err)
		m, err := h.Create(ctx, configMap("example.com/theirs"))
		testkit.NoError(t, err)
		if m, err = chain.Ensure(ctx, m); err != nil || !slices.Equal(m.Finalizers, []string{"example.com/theirs", first, second, third}) {
			t.Fatal(m, err)
		}
		n := len(api.Requests())
		if again, err := chain.Ensure(ctx, m); again != m || err != nil || len(api.Requests()) != n {
			t.Error(again, err)
		}
		wants(t, chain.Finalize(ctx, m), "deletionTimestamp", "Ensure")
		testkit.Equal(t, chain.State(m).String(), "example.com/first is next; then example.com/second, example.com/third; finalizers of others: example.com/theirs")
		testkit.NoError(t, h.Delete(ctx, page))
		deleted := time.Now()
		live := func() *corev1.ConfigMap {
			t.Helper()
			m, err := h.GetLive(ctx, page)
			testkit.NoError(t, err)
			return m
		}
		fails := func(name string, since time.Time, calls string, left ...string) error {
			t.Helper()
			err := chain.Finalize(ctx, live())
			var step *finalizer.StepError
			if !errors.As(err, &step) || step.Finalizer != name || !step.Since.Equal(since) || step.Steps != 3 {
				t.Errorf("%+v since %s, want %s", err, step.Since, since)
			}
			testkit.Equal(t, s.took(), calls, "called")
			testkit.SlicesEqual(t, live().Finalizers, append([]string{"example.com/theirs"}, left...), "left")
			if state := chain.State(live()); state.Finalizer != name || !state.Since.Equal(since) || !errors.Is(err, state.Err) || state.Running {
				t.Errorf("the state is %+v", state)
			}
			return err
		}
		time.Sleep(time.Minute)
		s.results[first] = errors.New("no network")
		wants(t, fails(first, deleted, "first", first, second, third), "step 1 of 3, example.com/first, has been pending since "+deleted.UTC().Format(time.RFC3339)+": no network")
		time.Sleep(time.Minute)
		fails(first, deleted, "first", first, second, third)
		s.results[first], s.results[second] = nil, finalizer.Waiting("3 objects are left")
		tried := time.Now()
		if err := fails(second, tried, "first second", second, third); !finalizer.IsWaiting(err) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		wants(t, fails(second, tried, "second", second, third), "waiting: 3 objects are left")
		if got, want := chain.State(live()).String(), "example.com/second has been pending since "+tried.UTC().Format(time.RFC3339)+
			": waiting: 3 objects are left; then example.com/third; finalizers of others: example.com/theirs"; got != want {
			t.Error(got)
		}
		s.results[second] = nil
		testkit.Equal(t, chain.Finalize(ctx, live()), nil)
		testkit.Equal(t, s.took(), "second third")
		testkit.Equal(t, chain.State(live()).String(), "waits for finalizers of others: example.com/theirs")
		// Nothing is left to do, also with an older state of the object.
		testkit.Equal(t, chain.Finalize(ctx, live()), nil)
		testkit.Equal(t, s.took(), "")
		_, err = chain.Ensure(ctx, live())
		wants(t, err, "being deleted")
		testkit.NoError(t, testkit.Err(h.RemoveFinalizer(ctx, live(), "example.com/theirs")))
		testkit.ErrorSatisfies(t, testkit.Err(h.GetLive(ctx, page)), apierrors.IsNotFound)
	})
}

// TestChain_ARunningStepIsVisible: a step that hangs is shown from outside, until its timeout.
func TestChain_ARunningStepIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		h, ctx := handle(t, api), t.Context()
		chain, err := finalizer.NewChain(h, finalizer.Step[*corev1.ConfigMap]{
			Finalizer: first, Timeout: time.Minute, Run: func(ctx context.Context, _ *corev1.ConfigMap) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
		})
		testkit.NoError(t, err)
		testkit.NoError(t, testkit.Err(h.Create(ctx, configMap(first))))
		testkit.NoError(t, h.Delete(ctx, page))
		m, err := h.GetLive(ctx, page)
		testkit.NoError(t, err)
		result := make(chan error, 1)
		go func() { result <- chain.Finalize(ctx, m) }()
		synctest.Wait()
		if s := chain.State(m); !s.Running || !strings.HasPrefix(s.String(), "example.com/first has been running since ") {
			t.Error(s)
		}
		err = <-result
		if wants(t, err, "the step's timeout of 1m0s has passed"); !errors.Is(err, context.DeadlineExceeded) || chain.State(m).Running {
			t.Error(err)
		}
	})
}

func TestChain_APanicIsNotARunningStep(t *testing.T) {
	h := handle(t, sim.NewServer(sim.ConfigMaps))
	chain, err := finalizer.NewChain(h, finalizer.Step[*corev1.ConfigMap]{Finalizer: first, Run: func(context.Context, *corev1.ConfigMap) error { panic("no") }})
	testkit.NoError(t, err)
	m := configMap(first)
	now := metav1.Now()
	m.UID, m.DeletionTimestamp = "1", &now
	func() {
		defer func() { _ = recover() }()
		_ = chain.Finalize(t.Context(), m)
	}()
	if s := chain.State(m); s.Running || s.Since.IsZero() {
		t.Error(s)
	}
}

func TestNewChain_Mistakes(t *testing.T) {
	h, s := handle(t, sim.NewServer(sim.ConfigMaps)), &steps{}
	step := s.step(second)
	nothing := step
	nothing.Run = nil
	hurried := step
	hurried.Timeout = -1
	for name, c := range map[string]struct {
		h     *client.Handle[*corev1.ConfigMap]
		steps []finalizer.Step[*corev1.ConfigMap]
		words []string
	}{
		"no handle":   {nil, []finalizer.Step[*corev1.ConfigMap]{step}, []string{"the handle is nil"}},
		"no steps":    {h, nil, []string{"there are no steps"}},
		"twice":       {h, []finalizer.Step[*corev1.ConfigMap]{step, s.step(first), step}, []string{"step 3: the finalizer example.com/second has another step"}},
		"no function": {h, []finalizer.Step[*corev1.ConfigMap]{s.step(first), nothing}, []string{"step 2: the step example.com/second has no function"}},
		"no name":     {h, []finalizer.Step[*corev1.ConfigMap]{s.step("")}, []string{"step 1: a finalizer has no name"}},
		"no domain":   {h, []finalizer.Step[*corev1.ConfigMap]{s.step("cleanup")}, []string{`the finalizer "cleanup" is invalid`, "example.com/cleanup"}},
		"no timeout":  {h, []finalizer.Step[*corev1.ConfigMap]{hurried}, []string{"the timeout -1ns", "negative"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := finalizer.NewChain(c.h, c.steps...)
			wants(t, err, append(c.words, "finalizer.NewChain: ")...)
		})
	}
	chain, err := finalizer.NewChain(h, step)
	testkit.NoError(t, err)
	wants(t, chain.Finalize(t.Context(), nil), "deletionTimestamp")
	testkit.Equal(t, chain.State(nil).String(), "no finalizer is left")
}

func TestAddRemoveHas(t *testing.T) {
	m := configMap("example.com/theirs")
	shared := m.Finalizers
	if changed, err := finalizer.Add(m, first); !changed || err != nil || !finalizer.Has(m, first) {
		t.Error(m.Finalizers, err)
	}
	if changed, err := finalizer.Add(m, first); changed || err != nil {
		t.Error(m.Finalizers, err)
	}
	for _, name := range []string{"", "cleanup", "a b/c", "/c"} {
		changed, err := finalizer.Add(m, name)
		wants(t, err, "default/page", "example.com/cleanup")
		testkit.Equal(t, changed, false, m.Finalizers)
	}
	now := metav1.Now()
	m.DeletionTimestamp = &now
	testkit.Equal(t, testkit.Err(finalizer.Add(m, first)), nil, "one that it has:")
	_, err := finalizer.Add(m, second)
	wants(t, err, "default/page is being deleted", second)
	if !finalizer.Remove(m, "example.com/theirs") || finalizer.Remove(m, "example.com/theirs") || !slices.Equal(m.Finalizers, []string{first}) || shared[0] != "example.com/theirs" {
		t.Error(m.Finalizers, shared)
	}
	_, err = finalizer.Add((*corev1.ConfigMap)(nil), first)
	wants(t, err, "is nil")
	if finalizer.Has(nil, first) || finalizer.Remove((*corev1.ConfigMap)(nil), first) {
		t.Error("nothing has a finalizer")
	}
}
