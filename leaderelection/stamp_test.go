// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// heirs are replicas that write objects and record what they inherit.
type heirs struct {
	t      *testing.T
	api    *sim.Server
	client *client.Client
}

func newHeirs(t *testing.T) *heirs {
	t.Helper()
	h := &heirs{t: t, api: sim.NewServer(sim.Leases, sim.ConfigMaps)}
	var err error
	h.client, err = client.New(h.api.Config(), client.Options{})
	testkit.NoError(t, err)
	return h
}

// write writes an object under the term of a context.
func (h *heirs) write(work context.Context, name string) *corev1.ConfigMap {
	h.t.Helper()
	ctx := journal.With(work, journal.New(journal.Origin{}))
	m, err := client.For[*corev1.ConfigMap](h.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	ok(h.t, err)
	return m
}

// lead makes a replica lead, run do and release. It returns what the term inherited.
func (h *heirs) lead(identity string, do func(work context.Context)) (inherited *fence.Handover) {
	h.t.Helper()
	a := newReplica(h.t, h.api, identity)
	_, result := a.start(h.t, func(_, work context.Context) error {
		inherited = fence.FromContext(work).Inherited()
		testkit.Equal(h.t, lease(h.t, h.api).Annotations[leaderelection.WrittenAnnotation], "", fmt.Sprintf("while %s leads, the Lease has the annotation", identity))
		do(work)
		return nil
	})
	ok(h.t, result())
	return inherited
}

func nothing(context.Context) {}

// versions returns the inherited versions in a word.
func versions(h *fence.Handover) string {
	if h == nil {
		return "nothing"
	}
	s := "from " + h.Holder + ":"
	for _, w := range h.Written {
		s += " " + w.Resource.String() + " " + w.ResourceVersion
		for _, d := range w.Deleted {
			s += " without " + string(d.UID)
		}
	}
	if h.Unknown > 0 {
		s += fmt.Sprintf(" unknown %d", h.Unknown)
	}
	return s
}

// TestL9_AReleaseHandsOverWhatWasWritten: the next holder gets the newest version and the
// deletions, and so do those after it.
func TestL9_AReleaseHandsOverWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		var one, two *corev1.ConfigMap
		if got := h.lead("a", func(work context.Context) {
			one = h.write(work, "one")
			h.write(term.With(work, nil), "three")
			two = h.write(work, "two")
			ok(t, client.For[*corev1.ConfigMap](h.client).Delete(journal.With(work, journal.New(journal.Origin{})), types.NamespacedName{Namespace: "default", Name: one.Name}))
		}); got != nil {
			t.Errorf("the first one inherits %s", versions(got))
		}
		updates := h.api.Count("update", sim.Leases)
		released := lease(t, h.api)
		testkit.Pass(time.Hour)
		got := h.lead("b", nothing)
		testkit.Equal(t, updates, 1, "updates until the release")
		all := "configmaps " + two.ResourceVersion + " without " + string(one.UID)
		if versions(got) != "from a: "+all || !got.Released.Equal(released.Spec.RenewTime.Time) || got.Written[0].Host != sim.Host {
			t.Fatalf("b inherits %s, released at %s, want %s", versions(got), got.Released, all)
		}
		testkit.Equal(t, versions(h.lead("c", nothing)), "from b: "+all, "c inherits")
	})
}

// TestL9_OnlyTheLastReleaseCounts: an older annotation on the Lease does not count.
func TestL9_OnlyTheLastReleaseCounts(t *testing.T) {
	for name, c := range map[string]struct {
		then func(t *testing.T, h *heirs)
		want string
	}{
		"released": {func(*testing.T, *heirs) {}, "from a: configmaps 3"},
		"labelled": {func(t *testing.T, h *heirs) { label(t, h.api) }, "from a: configmaps 3"},
		"by a crash": {func(t *testing.T, h *heirs) {
			l := lease(t, h.api)
			give(h.api, "x") // it keeps the annotation, like client-go's elector
			after := lease(t, h.api)
			after.Annotations = l.Annotations
			h.api.Put(sim.Leases, after)
			testkit.Pass(time.Minute)
		}, "nothing"},
		"client-go led meanwhile": {func(t *testing.T, h *heirs) { clientgoLeads(t, h.api); testkit.Pass(time.Minute) }, "nothing"},
		"deleted":                 {func(_ *testing.T, h *heirs) { h.api.Remove(sim.Leases, "default", "operator") }, "nothing"},
		"garbage":                 {func(t *testing.T, h *heirs) { annotate(t, h.api, "{") }, "from : unknown 1"},
		"too long":                {func(t *testing.T, h *heirs) { annotate(t, h.api, strings.Repeat(" ", 100_000)) }, "from : unknown 1"},
		"of another version": {func(t *testing.T, h *heirs) {
			at := lease(t, h.api).Spec.RenewTime.UTC().Format(time.RFC3339Nano)
			annotate(t, h.api, `{"holder":"x","released":"`+at+`","unknown":2,"writes":[{"n":"x"}]}`)
		}, "from x: unknown 2"},
		"of another version, of an earlier release": {func(t *testing.T, h *heirs) {
			annotate(t, h.api, `{"holder":"x","released":"2020-01-01T00:00:00Z","writes":[{"n":"x"}]}`)
		}, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeirs(t)
				h.lead("a", func(work context.Context) { h.write(work, "one") })
				c.then(t, h)
				testkit.Equal(t, versions(h.lead("b", nothing)), c.want, "b inherits")
			})
		})
	}
}

// TestL9_WhatIsInheritedSurvivesAnAnswerThatIsLost: our own first acquisition has removed it from
// the Lease.
func TestL9_WhatIsInheritedSurvivesAnAnswerThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.lead("a", func(work context.Context) { h.write(work, "one") })
		lost := false
		h.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "update") && !lost {
				lost = true
				if _, err := r.Forward(h.api); err != nil {
					return nil, err
				}
				return r.Hang()
			}
			return nil, nil
		})
		testkit.Equal(t, versions(h.lead("b", nothing)), "from a: configmaps 3")
		testkit.Equal(t, lost, true)
	})
}

func TestL9_AStopDuringTheAcquisitionPassesOnTheHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.lead("a", func(work context.Context) { h.write(work, "one") })
		b := newReplica(t, h.api, "b")
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		defer cancel()
		stopping := func(req *http.Request) (*http.Response, error) {
			resp, err := h.api.RoundTrip(req)
			if req.Method == http.MethodPut {
				cancel()
			}
			return resp, err
		}
		b.line.Store(&stopping)
		ok(t, b.Run(ctx, neverLead(t)))
		testkit.Equal(t, versions(h.lead("c", nothing)), "from b: configmaps 3", "c inherits")
	})
}

// TestL9_NoNameIsStored: the Lease has no namespace, name or label of the writes, and no UID of an
// object that exists. An acquisition removes the annotation of the past.
func TestL9_NoNameIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.api.Put(sim.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "operator", Annotations: map[string]string{leaderelection.WrittenAnnotation: "of the past"},
		}})
		secret := []string{"of the past"}
		leaks := func(by string) {
			text, err := json.Marshal(lease(t, h.api))
			ok(t, err)
			for _, s := range secret {
				testkit.NotContains(t, string(text), s, fmt.Sprintf("%s leaves %q on the Lease", by, s))
			}
		}
		h.lead("a", func(work context.Context) {
			leaks("an acquisition")
			ctx := journal.With(work, journal.New(journal.Origin{}))
			m, err := client.For[*corev1.ConfigMap](h.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "the-namespace", Name: "the-name", UID: "3c2f1a50-9d0e-4c7c-8f43-000000001000", Labels: map[string]string{"the-label": "the-value"},
			}})
			ok(t, err)
			secret = append(secret, "the-namespace", "the-name", "the-label", "the-value", string(m.UID))
		})
		leaks("a release")
		testkit.Len(t, h.lead("b", nothing).Written, 1, "b inherits")
		leaks("a release that hands on")
	})
}

func TestL9_WithoutWritesNothingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.lead("a", nothing)
		testkit.Len(t, lease(t, h.api).Annotations, 0)
	})
}

// annotate changes the annotation of the Lease.
func annotate(t *testing.T, api *sim.Server, text string) {
	change(t, api, func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{leaderelection.WrittenAnnotation: text}
	})
}

func change(t *testing.T, api *sim.Server, f func(*coordinationv1.Lease)) {
	t.Helper()
	l := lease(t, api)
	f(l)
	api.Put(sim.Leases, l)
}

// clientgoLeads lets client-go's elector lead for a while and release.
func clientgoLeads(t *testing.T, api *sim.Server) {
	t.Helper()
	cfg := api.Config()
	cfg.Transport = &replica{api: api}
	c, err := kubernetes.NewForConfig(cfg)
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "client-go"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) { time.AfterFunc(5*time.Second, cancel) }, OnStoppedLeading: func() {}},
	})
	testkit.Equal(t, holder(t, api), "", "holds the Lease")
}
