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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/ledger"
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
	if h.client, err = client.New(h.api.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	return h
}

// write writes an object under the term of a context.
func (h *heirs) write(work context.Context, name string) *corev1.ConfigMap {
	h.t.Helper()
	ctx := ledger.With(work, ledger.New(ledger.Origin{Decode: func(schema.GroupResource) bool { return name == "labelled" }}))
	m, err := client.For[*corev1.ConfigMap](h.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"on": "yes"},
	}})
	ok(h.t, err)
	return m
}

// lead makes a replica lead, run do and release. It returns what the term inherited.
func (h *heirs) lead(identity string, do func(work context.Context)) (inherited *term.Handover) {
	h.t.Helper()
	a := newReplica(h.t, h.api, identity)
	_, result := a.start(h.t, func(_, work context.Context) error {
		inherited = term.FromContext(work).Inherited()
		if text := lease(h.t, h.api).Annotations[leaderelection.WrittenAnnotation]; text != "" {
			h.t.Errorf("while %s leads, the Lease has the annotation %s", identity, text)
		}
		do(work)
		return nil
	})
	ok(h.t, result())
	return inherited
}

func nothing(context.Context) {}

// names returns the names of inherited objects in a word.
func names(h *term.Handover) string {
	if h == nil {
		return "nothing"
	}
	s := "from " + h.Holder + ":"
	for i := range h.Writes {
		s += " " + nameOf(&h.Writes[i])
	}
	return s
}

// nameOf returns the name of an object from its hash.
func nameOf(w *ledger.Write) string {
	for _, name := range []string{"one", "two", "three", "labelled"} {
		if inClear(name).Hashed(w.Salt).Name == w.Name {
			return name
		}
	}
	return "unknown (" + w.Name + ")"
}

// inClear is an object in a test before it is hashed.
func inClear(name string) *ledger.Write {
	return &ledger.Write{Request: ledger.Request{Namespace: "default", Name: name}}
}

// TestL9_AReleaseHandsOverWhatWasWritten: the next holder gets the writes, and so do those after
// it.
func TestL9_AReleaseHandsOverWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		var one, two *corev1.ConfigMap
		if got := h.lead("a", func(work context.Context) {
			one = h.write(work, "one")
			two = h.write(work, "labelled")
			h.write(term.With(work, nil), "three")
			ok(t, client.For[*corev1.ConfigMap](h.client).Delete(ledger.With(work, ledger.New(ledger.Origin{})), types.NamespacedName{Namespace: "default", Name: one.Name}))
		}); got != nil {
			t.Errorf("the first one inherits %s", names(got))
		}
		updates := h.api.Count("update", sim.Leases)
		released := lease(t, h.api)
		pass(time.Hour)
		got := h.lead("b", nothing)
		if updates != 1 {
			t.Errorf("it took %d updates to release", updates)
		}
		if names(got) != "from a: labelled three one" || !got.Released.Equal(released.Spec.RenewTime.Time) {
			t.Fatalf("b inherits %s, released at %s", names(got), got.Released)
		}
		salt := got.Writes[0].Salt
		place := func(name string) string {
			return inClear(name).Hashed(salt).Namespace + "/" + inClear(name).Hashed(salt).Name
		}
		for i, want := range []string{
			fmt.Sprintf("update configmaps %s stored %s@%s %s", place("labelled"), salt.Hash("uid", string(two.UID)), two.ResourceVersion, sim.Host),
			"", fmt.Sprintf("delete configmaps %s gone %s@%s %s", place("one"), salt.Hash("uid", string(one.UID)), one.ResourceVersion, sim.Host),
		} {
			w, r := got.Writes[i], got.Writes[i].Request
			if says := fmt.Sprintf("%s %s %s@%s %s", &r, w.Effect, w.UID, w.ResourceVersion, w.Host); want != "" && says != want {
				t.Errorf("b inherits\n%s\nwant\n%s", says, want)
			}
		}
		if o, is := got.Writes[0].Object.(*metav1.PartialObjectMetadata); !is || o.Labels[salt.Hash("label", "on")] != salt.Hash("value", "on=yes") || got.Writes[1].Object != nil {
			t.Errorf("b inherits the labels %+v", got.Writes[0].Object)
		}
		if got := h.lead("c", nothing); names(got) != "from b: labelled three one" {
			t.Errorf("c inherits %s", names(got))
		}
	})
}

// TestL9_OnlyTheLastReleaseCounts: an older annotation on the Lease does not count.
func TestL9_OnlyTheLastReleaseCounts(t *testing.T) {
	for name, c := range map[string]struct {
		then func(t *testing.T, h *heirs)
		want string
	}{
		"released": {func(*testing.T, *heirs) {}, "from a: one"},
		"labelled": {func(t *testing.T, h *heirs) { label(t, h.api) }, "from a: one"},
		"by a crash": {func(t *testing.T, h *heirs) {
			l := lease(t, h.api)
			give(h.api, "x") // it keeps the annotation, like client-go's elector
			after := lease(t, h.api)
			after.Annotations = l.Annotations
			h.api.Put(sim.Leases, after)
			pass(time.Minute)
		}, "nothing"},
		"client-go led meanwhile": {func(t *testing.T, h *heirs) { clientgoLeads(t, h.api); pass(time.Minute) }, "nothing"},
		"deleted":                 {func(_ *testing.T, h *heirs) { h.api.Remove(sim.Leases, "default", "operator") }, "nothing"},
		"garbage":                 {func(t *testing.T, h *heirs) { annotate(t, h.api, "{") }, "nothing"},
		"too long":                {func(t *testing.T, h *heirs) { annotate(t, h.api, strings.Repeat(" ", 100_000)) }, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeirs(t)
				h.lead("a", func(work context.Context) { h.write(work, "one") })
				c.then(t, h)
				if got := names(h.lead("b", nothing)); got != c.want {
					t.Errorf("b inherits %s, want %s", got, c.want)
				}
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
				if _, err := h.api.Answer(r); err != nil {
					return nil, err
				}
				return r.Hang()
			}
			return nil, nil
		})
		if got := names(h.lead("b", nothing)); got != "from a: one" || !lost {
			t.Errorf("b inherits %s", got)
		}
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
		if got := names(h.lead("c", nothing)); got != "from b: one" {
			t.Errorf("c inherits %s", got)
		}
	})
}

// TestL9_WhatIsHandedOverFitsIntoALease: the annotation has a limit in bytes. The newest writes are
// kept, and the others are counted.
func TestL9_WhatIsHandedOverFitsIntoALease(t *testing.T) {
	for name, c := range map[string]struct {
		labels, least, most, kept int
	}{
		"120 objects":                     {0, 5 << 10, 8 << 10, term.MaxHandedOver},
		"objects with many labels, so 43": {10, 15 << 10, 16 << 10, 43},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeirs(t)
				labels := map[string]string{}
				for i := range c.labels {
					labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("v", 60)
				}
				h.lead("a", func(work context.Context) {
					ctx := ledger.With(work, ledger.New(ledger.Origin{Decode: func(schema.GroupResource) bool { return c.labels > 0 }}))
					for i := range 120 {
						_, err := client.For[*corev1.ConfigMap](h.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
							Namespace: fmt.Sprintf("namespace-%d", i), Name: fmt.Sprintf("%slong-%03d", strings.Repeat("long.", 39), i), Labels: labels,
						}})
						ok(t, err)
					}
				})
				n := len(lease(t, h.api).Annotations[leaderelection.WrittenAnnotation])
				t.Logf("the annotation has %d bytes", n)
				got := h.lead("b", nothing)
				if n > c.most || n < c.least || len(got.Writes) != c.kept || got.Unknown != term.MaxHandedOver-c.kept {
					t.Errorf("the annotation has %d bytes; b inherits %d writes and %d unknown ones", n, len(got.Writes), got.Unknown)
				}
				last := &got.Writes[len(got.Writes)-1]
				if want := last.Salt.Hash("namespace", "namespace-119"); last.Namespace != want {
					t.Errorf("the last write is in %s, want %s", last.Namespace, want)
				}
			})
		})
	}
}

// TestL9_NoNameIsStored: the Lease has no namespace, name, UID or label of the writes in clear
// text, also of inherited ones. The annotation of earlier versions, which has them, is removed.
func TestL9_NoNameIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.api.Put(sim.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "operator", Annotations: map[string]string{"setpoint.dev/written": "of the past"},
		}})
		secret := []string{"of the past"}
		leaks := func(by string) {
			text, err := json.Marshal(lease(t, h.api))
			ok(t, err)
			for _, s := range secret {
				if strings.Contains(string(text), s) {
					t.Errorf("%s leaves %q on the Lease: %s", by, s, text)
				}
			}
		}
		h.lead("a", func(work context.Context) {
			leaks("an acquisition")
			ctx := ledger.With(work, ledger.New(ledger.Origin{Decode: func(schema.GroupResource) bool { return true }}))
			m, err := client.For[*corev1.ConfigMap](h.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "the-namespace", Name: "the-name", UID: "3c2f1a50-9d0e-4c7c-8f43-000000001000", Labels: map[string]string{"the-label": "the-value"},
			}})
			ok(t, err)
			secret = append(secret, "the-namespace", "the-name", "the-label", "the-value", `"`+string(m.UID)+`"`)
		})
		leaks("a release")
		if got := h.lead("b", nothing); len(got.Writes) != 1 {
			t.Errorf("b inherits %s", names(got))
		}
		leaks("a release that hands on")
	})
}

func TestL9_WithoutWritesNothingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeirs(t)
		h.lead("a", nothing)
		if l := lease(t, h.api); len(l.Annotations) != 0 {
			t.Errorf("the Lease has %v", l.Annotations)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "client-go"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) { time.AfterFunc(5*time.Second, cancel) }, OnStoppedLeading: func() {}},
	})
	if h := holder(t, api); h != "" {
		t.Errorf("%q holds the Lease", h)
	}
}
