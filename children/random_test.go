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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

var (
	edits = flag.Int("edits", 1_000, "the number of random edits in TestRandomEdits, and in five runs of TestRandomFaults")
	runs  = flag.Int("runs", 5, "the number of runs of TestRandomFaults")
)

// TestRandomEdits: three owners that want children of common names, and other clients that edit and
// delete them or make objects of these names. At the end, each owner has what it wants and nothing
// else, unless another one has the name. No object of others was changed.
func TestRandomEdits(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				r := newRandom(w, seed)
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

// TestRandomFaults is TestRandomEdits while the informer of one kind of children fails, answers get
// lost, the operator crashes, and the API server is restored from a backup. An apply takes time:
// after a restore, the garbage collector deletes children of owners that no longer exist, and the
// operator makes them until its cache notices.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(*runs) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				r := newRandom(w, seed)
				w.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch"}}, Delay: 100 * time.Millisecond})
				for n := range *edits / 5 {
					r.edit(n)
					if r.IntN(5) == 0 {
						time.Sleep(time.Duration(r.IntN(10_000)) * time.Millisecond)
					}
					if r.IntN(10) == 0 {
						r.fault()
					}
				}
				r.heal()
				time.Sleep(time.Hour)
				r.check(t)
			})
		})
	}
}

type random struct {
	*world
	*rand.Rand

	wants    map[string]map[string]string // owner, child: value
	foreign  map[string]string            // name: UID
	stranger metav1.Object                // the owner of some of these
	failing  *fault.Fault                 // or nil
	backup   *sim.Backup                  // or nil
	kept     map[string]string            // foreign at the time of the backup
}

func newRandom(w *world, seed uint64) *random {
	stranger := w.api.Put(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}})
	return &random{
		world: w, Rand: rand.New(rand.NewPCG(seed, 1)), stranger: stranger,
		wants: map[string]map[string]string{}, foreign: map[string]string{},
	}
}

// fault begins or ends one.
func (r *random) fault() {
	switch r.IntN(6) {
	case 0, 1:
		if r.failing != nil {
			r.heal()
			return
		}
		lists := fault.Match{Verbs: []string{"list", "watch"}, Resources: []string{[]string{"configmaps", "services"}[r.IntN(2)]}}
		r.failing = r.api.Add(fault.Rule{Match: lists, Refuse: apierrors.NewServiceUnavailable("by the test")})
		r.api.Cut(lists)
	case 2:
		r.api.Add(fault.Rule{Match: fault.Match{Config: r.cfg, Verbs: []string{"patch", "delete"}}, Lose: true, Times: 1 + r.IntN(3)})
	case 3:
		r.crash()
	case 4:
		synctest.Wait()
		r.backup, r.kept = r.api.Backup(), maps.Clone(r.foreign)
	case 5:
		if r.backup == nil {
			return
		}
		r.backup.Restore()
		r.foreign = maps.Clone(r.kept)
		time.Sleep(time.Minute) // until the cache has noticed it: later changes could hide it
		for i := range 3 {      // an owner may be younger than the backup
			r.setDesired(fmt.Sprint("owner", i))
		}
	}
}

func (r *random) heal() {
	if r.failing != nil {
		r.failing.Remove()
		r.failing = nil
	}
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
			made := r.api.Put(sim.ConfigMaps, r.foreigner(name))
			r.foreign[name] = string(made.GetUID())
		} else if r.foreign[name] == string(cm.GetUID()) {
			r.api.Remove(sim.ConfigMaps, "default", name)
			delete(r.foreign, name)
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

// foreigner returns an object of others. Some have an owner and the annotation, as the children of
// another operator.
func (r *random) foreigner(name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": "foreign"}}
	if r.IntN(2) == 0 {
		cm.Annotations = map[string]string{children.AppliedAnnotation: "by another operator"}
		cm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.stranger, corev1.SchemeGroupVersion.WithKind("Secret"))}
	}
	return cm
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
		case r.foreign[name] != "" && (cm == nil || r.foreign[name] != string(cm.GetUID())):
			t.Errorf("%s of others is gone", name)
		case cm == nil && len(wanted) > 0:
			t.Errorf("%s is missing, wanted by %q:\n%s", name, wanted, r.states(wanted[0]))
		case cm == nil:
		case r.foreign[name] == string(cm.GetUID()):
			ours := slices.ContainsFunc(cm.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == "owners" })
			owner := metav1.GetControllerOf(cm)
			if got := r.value(name); got != "foreign" || ours || owner != nil && owner.UID != r.stranger.GetUID() {
				t.Errorf("%s of others has the value %q, the owner %v and the field managers %v", name, got, owner, cm.GetManagedFields())
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
