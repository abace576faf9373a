// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// choosing is a handler that chooses a delay for deletes, and panics if asked to.
type choosing struct {
	*log

	panics bool
}

func (c *choosing) Choose(e handler.Event, how *workqueue.AddOptions) {
	if c.panics {
		c.panics = false
		panic("no choice")
	}
	if e.Op == handler.Delete {
		how.After = time.Hour
	}
}

// TestChoice_OfPredicatesAndHandler: predicates choose class and delay in their order, then the
// handler. Initial lists stay in class Background unless chosen. After a panic of Choose the event
// is retried.
func TestChoice_OfPredicatesAndHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newSetup(t), &choosing{log: &log{}, panics: true}
		defer s.stop()
		urgent := handler.Named("urgent", handler.Where(func(_, after *corev1.ConfigMap) bool { return after != nil && after.Data["data"] == "urgent" }))
		update := handler.Where(func(before, after *corev1.ConfigMap) bool { return before != nil && after != nil })
		s.put("a", "b=urgent")
		src := source.Kind(s.maps, h, handler.After(time.Minute, update), handler.ResourceVersionChanged, handler.InClass(workqueue.Interactive, urgent))
		s.start(src, h, nil)
		synced(t, src)
		time.Sleep(time.Second)
		s.put("a=quick")
		synctest.Wait()
		s.put("a=urgent")
		synctest.Wait()
		s.remove("a")
		synctest.Wait()
		var got []string
		for _, how := range h.takeAdded() {
			got = append(got, fmt.Sprintf("%s %s in %s after %s", how.Reason.Event, how.Reason.Object, how.Class, how.After))
		}
		slices.Sort(got[:2]) // of the initial list, one was retried
		want := []string{
			"create default/a in background after 0s", "create default/b in interactive after 0s", "update default/a in normal after 1m0s",
			"update default/a in interactive after 1m0s", "delete default/a in normal after 1h0m0s",
		}
		testkit.SlicesEqual(t, got, want)
		testkit.Len(t, src.Status().State().Dropped, 0, "a choice dropped events")
	})
}

// TestChoice_Mistakes: only a source's own predicates may choose, and its conditions must fit the
// objects.
func TestChoice_Mistakes(t *testing.T) {
	secrets := handler.Where(func(_, _ *corev1.Secret) bool { return true })
	for want, f := range map[string]handler.Predicate{
		`"in class interactive" cannot choose a class or a delay inside "or"`: handler.Or(handler.GenerationChanged, handler.InClass(workqueue.Interactive)),
		`"after 1s" cannot choose a class or a delay inside "not"`:            handler.Not(handler.After(time.Second)),
		`"after 1s" cannot choose a class or a delay inside "and"`:            handler.And(handler.GenerationChanged, handler.After(time.Second)),
		`"after 1s" cannot choose a class or a delay inside "named"`:          handler.Named("later", handler.After(time.Second)),
		"takes a *v1.Secret, but the source delivers a *v1.ConfigMap":         handler.InClass(workqueue.Interactive, secrets),
		`a part of the predicate "after 1s when nil" is nil`:                  handler.After(time.Second, nil),
	} {
		s := newSetup(t)
		nothing := handler.Func[name](func(context.Context, handler.Event) ([]name, error) { return nil, nil })
		testkit.ErrorContains(t, validate(source.Kind(s.maps, nothing, f)), want, f)
	}
	testkit.Equal(t, handler.InClass(5, handler.GenerationChanged, handler.LabelsChanged).String(), "in class 5 when generation changed and labels changed", "the name")
}
