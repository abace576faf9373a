// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// mirror is a readable hash.
type mirror struct{}

func (mirror) Hash(sort, text string) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r ^ 1)
	}
	return sort + ":" + b.String()
}

// hashedOf returns a write as a Lease records it.
func hashedOf(w consistency.Write, of map[string]string) consistency.Write {
	h := w
	h.Hashed, h.Object = mirror{}, nil
	if of != nil {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for k, v := range of {
			o.Labels[mirror{}.Hash("label", k)] = mirror{}.Hash("value", k+"="+v)
		}
		h.Object = o
	}
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	h.Namespace, h.Name = mirror{}.Hash("namespace", w.Namespace), mirror{}.Hash("name", name)
	h.UID = types.UID(mirror{}.Hash("uid", string(w.UID)))
	return h
}

// located returns a write after Locate.
func located(d consistency.Declarations, w consistency.Write) consistency.Write {
	ws := []consistency.Write{w}
	d.Locate(ws)
	return ws[0]
}

// TestL9_HashedScopes: an informer is behind a hashed write unless its scope excludes it. The store
// never has the object here.
func TestL9_HashedScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const in, out = "gap", "shown"
		api := sim.NewServer(sim.Pods)
		api.Silence()
		c, _ := newCache(t, api)
		defer start(t, c)()
		of := map[string]string{"app": "web"}
		check := func(s cache.Scope, of map[string]string, want string) {
			t.Helper()
			h := cache.ForScope[*corev1.Pod](c, s)
			defer h.Release()
			synced(t, h)
			d := declared(h)
			w := hashedOf(consistency.Write{Resource: schema.GroupResource{Resource: "pods"}, Namespace: "default", Name: "a", UID: "never", ResourceVersion: "1000"}, of)
			expect(t, d, located(d, w), want, h.String())
			w.Gone = true
			expect(t, d, located(d, w), want, "gone, "+h.String())
		}
		name := func(namespace, name string) types.NamespacedName {
			return types.NamespacedName{Namespace: namespace, Name: name}
		}
		check(cache.Scope{}, nil, in)
		check(cache.Scope{Namespaces: cache.NewSet("x", "default")}, nil, in)
		check(cache.Scope{Namespaces: cache.NewSet("x", "y")}, nil, out)
		check(cache.Scope{Names: cache.NewSet(name("x", "a"), name("default", "a"))}, nil, in)
		check(cache.Scope{Names: cache.NewSet(name("x", "a"), name("default", "b"))}, nil, out)
		for selector, want := range map[string]string{
			"app=web": in, "app": in, "app in (web,db)": in, "app!=db": in, "other!=x": in, "!other": in, "app>1": in, "app in (web,db),app!=db": in,
			"app=db": out, "!app": out, "other": out, "app=web,other": out, "app!=web": out, "app in (web,db),app!=web": out, "app notin (web)": out,
		} {
			parsed, err := labels.Parse(selector)
			if err != nil {
				t.Fatal(err)
			}
			check(cache.Scope{Labels: parsed}, of, want)
			check(cache.Scope{Labels: parsed}, nil, in) // unknown
		}
		for selector, want := range map[string]struct{ everywhere, there string }{
			"metadata.namespace=default":  {in, in},
			"metadata.namespace=x":        {out, out},
			"metadata.namespace!=default": {out, out},
			"metadata.name=a":             {in, in},
			// A name has no hash without its namespace.
			"metadata.name=b": {in, out},
			"metadata.name=b,metadata.namespace=default": {out, out},
			"metadata.name!=a":                           {in, out},
			"spec.nodeName=one":                          {in, in},
		} {
			parsed, err := fields.ParseSelector(selector)
			if err != nil {
				t.Fatal(err)
			}
			check(cache.Scope{Fields: parsed}, of, want.everywhere)
			check(cache.Scope{Fields: parsed, Namespaces: cache.NewSet("default")}, of, want.there)
		}
	})
}

// TestL9_HashedObjectsAreLocated: an informer shows a hashed write if it would show the plain one.
func TestL9_HashedObjectsAreLocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, name := range []string{"changed", "gone", "marked", "same", "again"} {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		c, _ := newCache(t, api)
		defer start(t, c)()
		h := cache.For[*corev1.ConfigMap](c)
		synced(t, h)
		d := declared(h)
		object := func(name string) consistency.Write {
			return writtenOf(sim.ConfigMaps, api.Object(sim.ConfigMaps, "default", name))
		}
		put := func(name, value string) consistency.Write {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value}})
			return object(name)
		}
		api.Lag(lag)
		gone, marked, again := goneOf(object("gone")), markedOf(object("marked")), goneOf(object("again"))
		other := gone
		other.UID = "that of one before"
		same := object("same")
		behind := map[string]consistency.Write{"changed": put("changed", "x"), "made": put("made", "x"), "gone": gone, "marked": marked, "again": again}
		for _, name := range []string{"gone", "marked", "again"} {
			api.Remove(sim.ConfigMaps, "default", name)
		}
		put("again", "y")
		woken := 0
		for what, w := range behind {
			at := located(d, hashedOf(w, nil))
			expect(t, d, at, "gap", what)
			if gap, _ := d.Behind(at); gap != nil {
				gap.Notify(wake(func() { woken++ }))
				if named := strings.Contains(gap.String(), "default/"+what); named != (what != "made") {
					t.Errorf("%s: %s", what, gap)
				}
			}
		}
		expect(t, d, located(d, hashedOf(same, nil)), "shown", "same")
		expect(t, d, located(d, hashedOf(other, nil)), "shown", "another UID")
		time.Sleep(lag)
		synctest.Wait()
		if woken != len(behind) {
			t.Errorf("%d waiters were woken, want %d", woken, len(behind))
		}
		for what, w := range behind {
			expect(t, d, located(d, hashedOf(w, nil)), "shown", what)
		}
	})
}
