// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// metadata is the usual pair: the metadata is watched, and the object is read.
func (f *forms) metadata() {
	f.t.Helper()
	f.start(self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: configMapKind})), read(f, cache.For[*corev1.ConfigMap](f.reads)))
}

// nothingLeft checks that no key is remembered.
func (f *forms) nothingLeft() {
	f.t.Helper()
	if s := f.control.Snapshot(); len(s.Keys) > 0 || len(s.Queue.Keys) > 0 {
		f.t.Errorf("something is left: %+v, %+v", s.Keys, s.Queue)
	}
}

// TestC6_AFormThatStandsStill: after the bound the Reconcile starts, and Stale names the informer.
// When the informer shows the object after all, the key is reconciled again.
func TestC6_AFormThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.o.Workers = 1
		f.metadata()
		frozen := f.api.Add(fault.Rule{Match: fault.Match{Config: f.reading, Verbs: []string{"watch"}}, Freeze: true})
		f.put("a", "1")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := f.control.Snapshot()
		if len(s.Running) != 0 || len(s.Keys) != 1 || !strings.Contains(s.Keys[0].Awaits, "does not show the change of default/a at ") {
			t.Errorf("while it waits: %+v", s)
		}
		f.want(25*time.Second, "30s: a sees absent stale")
		if len(f.awaited) != 1 || !f.awaited[0].Expired || f.awaited[0].Doubts == nil {
			t.Errorf("the hook got %+v", f.awaited)
		}
		frozen.Remove()
		f.want(time.Second, "0s: a sees 1")
		f.put("a", "2")
		f.want(time.Second, "0s: a sees 2")
		f.nothingLeft()
	})
}

// TestC6_AFormThatFails: an informer that was synced is waited for within the bound, and its
// recovery makes the key due. One that never was is not: its reads are errors.
func TestC6_AFormThatFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", fmt.Errorf("no"))
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.metadata()
		refused := f.api.Add(fault.Rule{Match: fault.Match{Config: f.reading}, Refuse: forbidden})
		f.api.Cut(fault.Match{Config: f.reading})
		f.put("a", "1")
		f.want(40*time.Second, "30s: a sees absent stale")
		refused.Remove()
		time.Sleep(10 * time.Second) // the pause before the list is random
		synctest.Wait()
		// The event comes before the informer is known to have all that it missed.
		if log := f.take(); len(log) != 1 || !strings.HasSuffix(log[0], ": a sees 1 stale") {
			t.Errorf("after the recovery, it reconciled %q", log)
		}
		f.nothingLeft()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.api.Add(fault.Rule{Match: fault.Match{Config: f.reading}, Refuse: forbidden})
		f.metadata()
		f.get = func(context.Context, types.NamespacedName) (metav1.Object, error) { return &corev1.ConfigMap{}, nil }
		f.put("a", "1")
		f.want(time.Second, "0s: a sees  stale")
	})
}

// TestC6_EndlessEventsDoNotKeepAKeyWaiting: events that come while a key waits are for its next
// Reconcile.
func TestC6_EndlessEventsDoNotKeepAKeyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.metadata()
		f.lag(lag)
		for n := range 40 {
			f.put("a", fmt.Sprint(n))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		log := f.take()
		if len(log) < 3 || len(log) > 8 || log[0] != "500ms: a sees 0" || !strings.HasSuffix(log[len(log)-1], "a sees 39") {
			t.Errorf("reconciled %q", log)
		}
		f.nothingLeft()
	})
}

// TestC6_AnEventOfAnotherObject: a mapped key waits for the object of the event, for all of them.
func TestC6_AnEventOfAnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		maps := cache.For[*corev1.ConfigMap](f.reads)
		one := handler.Func[types.NamespacedName](func(context.Context, handler.Event) ([]types.NamespacedName, error) {
			return []types.NamespacedName{{Namespace: "default", Name: "all"}}, nil
		})
		f.get = func(ctx context.Context, _ types.NamespacedName) (metav1.Object, error) {
			all, err := maps.List(ctx, cache.ListOptions{})
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"v": fmt.Sprint(len(all))}}}, err
		}
		f.start([]source.Source[types.NamespacedName]{source.Kind(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: configMapKind}), one)}, maps)
		f.lag(lag)
		for n := range 100 { // more than a key remembers
			f.put(fmt.Sprint("m", n), "1")
		}
		last := func(want string) { // it may have been taken after the first of them
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			log := f.take()
			if len(log) == 0 || len(log) > 2 || log[len(log)-1] != "500ms: all sees "+want {
				t.Errorf("reconciled %q, in the end it must see %s", log, want)
			}
			f.began = time.Now()
		}
		last("100")
		for n := range 100 {
			f.remove(fmt.Sprint("m", n))
		}
		last("0")
		f.nothingLeft()
	})
}

// TestC6_AFormsOwner: a child's event makes its owner due, which reads the child from another
// informer.
func TestC6_AFormsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		owners := cache.For[*corev1.Secret](f.watches)
		children := cache.For[*corev1.ConfigMap](f.reads)
		f.get = func(ctx context.Context, _ types.NamespacedName) (metav1.Object, error) {
			o, err := children.Get(ctx, types.NamespacedName{Namespace: "default", Name: "child"})
			return o, err
		}
		s := f.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("owner")})
		f.start([]source.Source[types.NamespacedName]{
			source.Kind(owners, handler.Self()),
			source.Kind(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: configMapKind}), handler.Owner(owners)),
		}, children)
		f.lag(lag)
		m := &corev1.ConfigMap{ObjectMeta: named("child")}
		m.Labels = map[string]string{"v": "1"}
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: s.GetUID(), Controller: new(true)}}
		f.api.Put(sim.ConfigMaps, m)
		f.want(time.Second, "500ms: owner sees 1")
		f.remove("child")
		f.want(time.Second, "500ms: owner sees absent")
	})
}

// TestC6_AnObjectLeavesTheWatchedSelector: the other informer shows the object without the label. A
// deletion of one that has the label is waited for, too.
func TestC6_AnObjectLeavesTheWatchedSelector(t *testing.T) {
	app := func(name string) cache.Scope {
		return cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"app": name})}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.start(self(cache.ForScope[*corev1.ConfigMap](f.watches, app("a"))), read(f, cache.For[*corev1.ConfigMap](f.reads)))
		f.lag(lag)
		f.put("a", "1", "app=a")
		f.put("a", "2", "app=b")
		f.wantLast(2*time.Second, "500ms: a sees 2", "500ms: a sees 1")
		f.put("a", "3", "app=a")
		f.want(2*time.Second, "500ms: a sees 3")
		f.put("a", "4", "app=b")
		f.want(2*time.Second, "500ms: a sees 4")
		f.put("a", "5", "app=a")
		f.remove("a")
		f.wantLast(2*time.Second, "500ms: a sees absent", "500ms: a sees 5")
		f.nothingLeft()
	})
	synctest.Test(t, func(t *testing.T) { // from the watched selector to the one that is read
		f := newForms(t)
		f.start(self(cache.ForScope[*corev1.ConfigMap](f.watches, app("a"))), read(f, cache.ForScope[*corev1.ConfigMap](f.reads, app("b"))))
		f.lag(lag)
		f.put("a", "1", "app=a")
		f.want(2*time.Second, "0s: a sees absent")
		f.put("a", "2", "app=b")
		f.want(2*time.Second, "500ms: a sees 2")
		f.put("a", "3", "app=a")
		f.want(2*time.Second, "500ms: a sees absent")
		f.remove("a")
		f.want(2*time.Second, "1s: a sees absent") // it might have got the other label
		f.nothingLeft()
	})
}

// TestC6_AFormThatCannotShowIt: an informer that excludes the object is not waited for. If it is
// unknown whether it does, the wait ends after a second.
func TestC6_AFormThatCannotShowIt(t *testing.T) {
	for what, c := range map[string]struct {
		scope cache.Scope
		want  string
	}{
		"namespace": {cache.Scope{Namespaces: cache.NewSet("other")}, "0s: a sees absent"},
		"label":     {cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"app": "b"})}, "0s: a sees absent"},
		"name":      {cache.Scope{Fields: fields.OneTermEqualSelector("metadata.name", "b")}, "0s: a sees absent"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForms(t)
				reads := cache.ForScope[*corev1.ConfigMap](f.reads, c.scope)
				f.get = func(ctx context.Context, key types.NamespacedName) (metav1.Object, error) {
					if what == "namespace" {
						return nil, apierrors.NewNotFound(schema.GroupResource{}, key.Name)
					}
					o, err := reads.Get(ctx, key)
					return o, err
				}
				f.start(self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: configMapKind})), reads)
				f.lag(lag)
				f.put("a", "1", "app=a")
				f.want(2*time.Second, c.want)
				if len(f.awaited) > 0 && f.awaited[0].Expired {
					t.Errorf("it gave up: %+v", f.awaited)
				}
				f.nothingLeft()
			})
		})
	}
}

// TestC6_AFieldThatMayExcludeIt: metadata do not show whether a field selector excludes the object,
// but the object does.
func TestC6_AFieldThatMayExcludeIt(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	metadata := func(f *forms) []source.Source[types.NamespacedName] {
		return self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: kind}))
	}
	packed := func(f *forms) []source.Source[types.NamespacedName] {
		return self(cache.For[*corev1.Secret](f.watches))
	}
	for _, c := range []struct {
		watch func(f *forms) []source.Source[types.NamespacedName]
		of    corev1.SecretType
		want  string
	}{
		{metadata, "a", "500ms: a sees 1"},
		{metadata, "b", "1s: a sees absent"},
		{packed, "a", "500ms: a sees 1"},
		{packed, "b", "0s: a sees absent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newForms(t)
			f.start(c.watch(f), read(f, cache.ForScope[*corev1.Secret](f.reads, cache.Scope{Fields: fields.OneTermEqualSelector("type", "a")})))
			f.lag(lag)
			s := &corev1.Secret{ObjectMeta: named("a"), Type: c.of}
			s.Labels = map[string]string{"v": "1"}
			f.api.Put(sim.Secrets, s)
			f.want(2*time.Second, c.want)
			if len(f.awaited) > 0 && f.awaited[0].Expired {
				t.Errorf("it gave up: %+v", f.awaited)
			}
			f.nothingLeft()
		})
	}
}

// TestC6_ADeletionFoundByAList: such an event has the version of the last known state, which the
// other informer still shows.
func TestC6_ADeletionFoundByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		f.start(self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: configMapKind, Labels: labels.SelectorFromSet(labels.Set{"app": "a"})})),
			read(f, cache.For[*corev1.ConfigMap](f.reads)))
		f.put("a", "1", "app=a")
		f.put("b", "1", "app=a")
		f.want(time.Second, "0s: a sees 1", "0s: b sees 1")
		f.lag(10 * time.Second)
		gone := apierrors.NewResourceExpired("too old")
		f.api.Add(fault.Rule{Match: fault.Match{Config: f.watching, Verbs: []string{"watch"}, Func: func(r *fault.Request) bool {
			return r.Query.Get("sendInitialEvents") == ""
		}}, Times: 1, Refuse: gone})
		f.api.Add(fault.Rule{Match: fault.Match{Config: f.watching}, Times: 1, Delay: time.Millisecond})
		f.api.Cut(fault.Match{Config: f.watching})
		f.remove("a")
		f.put("b", "2", "app=b")
		f.want(15*time.Second, "10s: a sees absent", "10s: b sees 2")
		f.nothingLeft()
	})
}

// TestC6_FormsInTheInitialList: the list that is read may be older than the one that is watched.
func TestC6_FormsInTheInitialList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		list := f.api.Add(fault.Rule{Match: fault.Match{Config: f.watching, Resources: []string{"configmaps"}}, Hold: true})
		f.metadata()
		f.lag(lag)
		f.put("a", "1")
		list.Remove()
		f.want(10*time.Second, "500ms: a sees 1")
		f.nothingLeft()
	})
}

// TestC6_AdoptedForms: the informers of the program count, in both roles.
func TestC6_AdoptedForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		// An informer of another cache is foreign to the one that adopts it.
		foreign := factory.New(f.reads, nil).Core().V1().ConfigMaps().Informer()
		adopted := cache.Adopt[*corev1.ConfigMap](nil, foreign, cache.AdoptOptions{})
		f.get = func(_ context.Context, key types.NamespacedName) (metav1.Object, error) {
			obj, found, err := foreign.GetStore().GetByKey(key.String())
			if !found || err != nil {
				return nil, apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return obj.(metav1.Object), nil
		}
		f.start(self(cache.For[*corev1.ConfigMap](f.watches)), adopted)
		f.lag(lag)
		f.put("a", "1")
		f.want(2*time.Second, "500ms: a sees 1")
		f.remove("a")
		f.want(2*time.Second, "500ms: a sees absent")
	})
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		foreign := factory.New(f.watches, nil).Core().V1().ConfigMaps().Informer()
		f.start(self(cache.Adopt[*corev1.ConfigMap](nil, foreign, cache.AdoptOptions{})),
			read(f, cache.ForScope[*corev1.ConfigMap](f.reads, cache.Scope{Storage: cache.Decoded})))
		f.lag(lag)
		f.put("a", "1")
		f.want(2*time.Second, "500ms: a sees 1")
		f.remove("a")
		f.want(2*time.Second, "500ms: a sees absent")
	})
}
