// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

var edits = flag.Int("edits", 1_000, "the number of random edits in TestRandomEdits")

// TestRandomEdits: three owners that want children of common names, and other clients that edit and
// delete them or make objects of these names. At the end, each owner has what it wants and nothing
// else, unless another one has the name. No object of others was changed.
func TestRandomEdits(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				r := &random{world: w, Rand: rand.New(rand.NewPCG(seed, 1)), wants: map[string]map[string]string{}, foreign: map[string]string{}}
				for n := range *edits / 5 {
					r.edit(n)
					if r.IntN(20) == 0 {
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					}
					if r.IntN(100) == 0 {
						w.restart()
					}
				}
				time.Sleep(time.Hour) // the longest backoff
				r.check(t)
			})
		})
	}
}

type random struct {
	*world
	*rand.Rand

	wants   map[string]map[string]string // owner, child: value
	foreign map[string]string            // name: UID
}

func (r *random) edit(n int) {
	owner, name, value := fmt.Sprint("owner", r.IntN(3)), fmt.Sprint("name", r.IntN(8)), fmt.Sprint("value", n)
	cm := r.object(sim.ConfigMaps, name)
	switch r.IntN(10) {
	case 0, 1, 2:
		if r.wants[owner] == nil {
			r.wants[owner] = map[string]string{}
		}
		r.wants[owner][name] = value
		r.setDesired(owner)
	case 3, 4:
		delete(r.wants[owner], name)
		r.setDesired(owner)
	case 5: // an object of others; it goes, too
		synctest.Wait() // see the package doc: not between a Reconcile's read and its apply
		cm = r.object(sim.ConfigMaps, name)
		if cm == nil {
			made := r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": "foreign"}})
			r.foreign[name] = string(made.GetUID())
		} else if r.foreign[name] == string(cm.GetUID()) {
			r.api.Remove(sim.ConfigMaps, "default", name)
		}
	case 6:
		if cm != nil && r.foreign[name] != string(cm.GetUID()) {
			r.api.Remove(sim.ConfigMaps, "default", name)
		}
	case 7: // drift
		if cm != nil && r.foreign[name] != string(cm.GetUID()) {
			_ = unstructured.SetNestedField(cm.Object, "drift", "data", "key")
			r.api.Put(sim.ConfigMaps, cm)
		}
	case 8: // lost annotation, other label
		if cm != nil && r.foreign[name] != string(cm.GetUID()) {
			cm.SetLabels(map[string]string{"by": "others"})
			r.api.Put(sim.ConfigMaps, cm)
		}
	case 9: // another child, and a child with an order
		r.setDesired(owner)
	}
}

func (r *random) setDesired(owner string) {
	var all []client.ApplyConfiguration
	for i, name := range slices.Sorted(maps.Keys(r.wants[owner])) {
		var child client.ApplyConfiguration = configMap(name, r.wants[owner][name])
		if i > 0 {
			child = children.With(child, children.After(service(owner)))
		}
		all = append(all, child)
	}
	r.mu.Lock()
	r.desired[owner] = append(all, service(owner))
	r.mu.Unlock()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: owner, Annotations: map[string]string{"touched": fmt.Sprint(r.Uint64())}}}
	r.api.Put(owners, sa)
}

func (r *random) check(t *testing.T) {
	for i := range 8 {
		name := fmt.Sprint("name", i)
		cm := r.object(sim.ConfigMaps, name)
		var wanted []string
		for owner, wants := range r.wants {
			if _, ok := wants[name]; ok {
				wanted = append(wanted, owner)
			}
		}
		switch {
		case cm == nil && len(wanted) > 0:
			t.Errorf("%s is missing, wanted by %q:\n%s", name, wanted, r.states(wanted[0]))
		case cm == nil:
		case r.foreign[name] == string(cm.GetUID()):
			if got := r.value(name); got != "foreign" || len(cm.GetOwnerReferences()) > 0 {
				t.Errorf("%s of others has the value %q and the owners %v", name, got, cm.GetOwnerReferences())
			}
		default:
			owner := metav1.GetControllerOf(cm)
			if owner == nil || !slices.Contains(wanted, owner.Name) {
				t.Errorf("%s is owned by %v, wanted by %q", name, owner, wanted)
			} else if want := r.wants[owner.Name][name]; r.value(name) != want {
				t.Errorf("%s has the value %q, its owner %s wants %q", name, r.value(name), owner.Name, want)
			}
		}
	}
}
