// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var clusterRoles = sim.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "clusterroles"}

// rootCA is a config map that a controller of the real control plane creates in each namespace.
const rootCA = "kube-root-ca.crt"

// side is a server to compare: the sim, or the real one, which needs time for its controllers.
type side struct {
	*testing.T
	config *rest.Config
	real   bool
	dynamic.Interface
}

// onBothSides runs a test on the sim and, except with -short, on the real control plane.
func onBothSides(t *testing.T, test func(s *side)) {
	run := func(name string, cfg func(t *testing.T) *rest.Config) {
		t.Run(name, func(t *testing.T) {
			s := &side{T: t, real: name == "real"}
			s.config = rest.CopyConfig(cfg(t))
			s.config.QPS = -1
			var err error
			s.Interface, err = dynamic.NewForConfig(s.config)
			testkit.NoError(t, err)
			test(s)
		})
	}
	run("sim", func(t *testing.T) *rest.Config {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Pods, sim.Namespaces, clusterRoles)
		t.Cleanup(server.Close)
		return server.Config()
	})
	if testing.Short() {
		return
	}
	run("real", func(t *testing.T) *rest.Config {
		cluster := testkit.Must(envtest.Start(t.Context(), envtest.Options{Controllers: true}))
		t.Cleanup(func() { testkit.NoError(t, cluster.Stop()) })
		return cluster.Config()
	})
}

func (s *side) in(r sim.Resource, namespace string) dynamic.ResourceInterface {
	of := s.Resource(schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name})
	if !r.Namespaced {
		return of
	}
	return of.Namespace(namespace)
}

// eventually waits until got returns want; the sim must return it at once.
func (s *side) eventually(want string, got func() string) bool {
	s.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		is := got()
		if is == want {
			return true
		}
		if !s.real {
			s.Errorf("got  %s\nwant %s", is, want)
			return false
		}
		select {
		case <-deadline.C:
			s.Errorf("got  %s\nwant %s", is, want)
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *side) namespace(name string) {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	if _, err := s.in(sim.Namespaces, "").Create(s.Context(), u, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// family is a namespace with config maps that own each other.
type family struct {
	*side
	name string
}

// ref is an owner reference to a config map, which must exist.
func (f family) ref(name string, block bool) metav1.OwnerReference {
	f.Helper()
	o := testkit.Must(f.in(sim.ConfigMaps, f.name).Get(f.Context(), name, metav1.GetOptions{}))
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: o.GetUID(), BlockOwnerDeletion: &block}
}

func (f family) create(name string, finalizers []string, owners ...metav1.OwnerReference) {
	f.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetName(name)
	u.SetNamespace(f.name)
	u.SetFinalizers(finalizers)
	u.SetOwnerReferences(owners)
	testkit.NoError(f, testkit.Err(f.in(sim.ConfigMaps, f.name).Create(f.Context(), u, metav1.CreateOptions{})))
}

func (f family) own(name string, owners ...metav1.OwnerReference) {
	f.Helper()
	f.patch(name, map[string]any{"ownerReferences": owners})
}

func (f family) release(name string) {
	f.Helper()
	f.patch(name, map[string]any{"finalizers": nil})
}

func (f family) patch(name string, meta map[string]any) {
	f.Helper()
	data := testkit.Must(json.Marshal(map[string]any{"metadata": meta}))
	testkit.NoError(f, testkit.Err(f.in(sim.ConfigMaps, f.name).Patch(f.Context(), name, types.MergePatchType, data, metav1.PatchOptions{})))
}

func (f family) delete(name string, policy metav1.DeletionPropagation) {
	f.Helper()
	testkit.NoError(f, f.in(sim.ConfigMaps, f.name).Delete(f.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// state describes the config maps of the namespace.
func (f family) state() string {
	f.Helper()
	list := testkit.Must(f.in(sim.ConfigMaps, f.name).List(f.Context(), metav1.ListOptions{}))
	var all []string
	for _, o := range list.Items {
		if o.GetName() == rootCA {
			continue
		}
		line := o.GetName()
		if o.GetDeletionTimestamp() != nil {
			line += " deleting"
		}
		for _, finalizer := range o.GetFinalizers() {
			line += " " + finalizer
		}
		for _, ref := range o.GetOwnerReferences() {
			line += " of:" + ref.Name
			if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				line += "!"
			}
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

const (
	foreground = metav1.DeletePropagationForeground
	background = metav1.DeletePropagationBackground
	orphan     = metav1.DeletePropagationOrphan
)

var hold = []string{"example.com/hold"}

// collections are the cases of garbage collection. Each step returns the state that must follow.
var collections = map[string]func(f family, then func(want string)){
	"background": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.create("c", nil, f.ref("b", false))
		f.delete("a", background)
		then("")
	},
	"foreground": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", hold, f.ref("a", true))
		f.create("c", nil, f.ref("a", true))
		f.delete("a", foreground)
		then("a deleting foregroundDeletion; b deleting example.com/hold of:a!")
		f.release("b")
		then("")
	},
	"foreground does not wait for dependents that do not block": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", hold, f.ref("a", false))
		f.delete("a", foreground)
		then("b deleting example.com/hold of:a")
		f.release("b")
		then("")
	},
	"foreground is handed down": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.create("c", hold, f.ref("b", true))
		f.delete("a", foreground)
		then("a deleting foregroundDeletion; b deleting foregroundDeletion of:a!; c deleting example.com/hold of:b!")
		f.release("c")
		then("")
	},
	"a dependent that stops blocking ends the wait": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", hold, f.ref("a", true))
		f.delete("a", foreground)
		then("a deleting foregroundDeletion; b deleting example.com/hold of:a!")
		f.own("b", f.ref("a", false))
		then("b deleting example.com/hold of:a")
	},
	"orphan": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.create("c", nil, f.ref("b", true))
		f.delete("a", orphan)
		then("b; c of:b!")
	},
	"orphan keeps other owners": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("z", nil)
		f.create("b", nil, f.ref("a", true), f.ref("z", false))
		f.delete("a", orphan)
		then("b of:z; z")
	},
	"a dead owner of several": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("z", nil)
		f.create("b", nil, f.ref("a", true), f.ref("z", true))
		f.delete("a", background)
		then("b of:z!; z")
		f.delete("z", background)
		then("")
	},
	"a waiting owner of several": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("z", nil)
		f.create("b", nil, f.ref("a", true), f.ref("z", true))
		f.delete("a", foreground)
		then("b of:z!; z")
	},
	"a dependent that has waited before": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.create("c", hold, f.ref("b", true))
		f.delete("c", foreground)
		then("a; b of:a!; c deleting example.com/hold of:b!")
		f.delete("a", foreground)
		then("c deleting example.com/hold of:b!")
	},
	"an owner in another namespace": func(f family, then func(string)) {
		ref := family{f.side, f.name + "-other"}
		f.namespace(ref.name)
		ref.create("a", nil)
		f.create("b", nil, ref.ref("a", true))
		then("")
	},
	"an owner that never was": func(f family, then func(string)) {
		f.create("b", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "never"})
		then("")
	},
	"an owner with another uid": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "never"})
		then("a")
	},
	"an owner with another name": func(f family, then func(string)) {
		f.create("a", nil)
		ref := f.ref("a", false)
		ref.Name = "never"
		f.create("b", nil, ref)
		then("a")
	},
	"one owner never was": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", false), metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "never"})
		then("a; b of:a")
	},
	"an update adds an owner that never was": func(f family, then func(string)) {
		f.create("b", nil)
		f.own("b", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "never"})
		then("")
	},
	"an owner of an unknown kind": func(f family, then func(string)) {
		f.create("b", nil, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Never", Name: "a", UID: "unknown-kind"})
		then("b of:a")
	},
	"a cluster-scoped owner": func(f family, then func(string)) {
		role := &unstructured.Unstructured{}
		role.SetAPIVersion("rbac.authorization.k8s.io/v1")
		role.SetKind("ClusterRole")
		role.SetName(f.name)
		role = testkit.Must(f.in(clusterRoles, "").Create(f.Context(), role, metav1.CreateOptions{}))
		f.create("b", nil, metav1.OwnerReference{APIVersion: role.GetAPIVersion(), Kind: role.GetKind(), Name: role.GetName(), UID: role.GetUID()})
		then("b of:" + f.name)
		testkit.NoError(f, f.in(clusterRoles, "").Delete(f.Context(), f.name, metav1.DeleteOptions{}))
		then("")
	},
	"a cycle in the foreground": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.own("a", f.ref("b", true))
		f.delete("a", foreground)
		then("")
	},
	"a cycle in the background": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", nil, f.ref("a", true))
		f.own("a", f.ref("b", true))
		f.delete("a", background)
		then("")
	},
	"a cycle with a finalizer": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", hold, f.ref("a", true))
		f.own("a", f.ref("b", true))
		f.delete("b", foreground)
		then("a of:b; b deleting example.com/hold of:a!")
	},
	"a finalizer on a dependent": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", hold, f.ref("a", true))
		f.create("c", nil, f.ref("b", true))
		f.delete("a", background)
		then("b deleting example.com/hold of:a!; c of:b!")
		f.release("b")
		then("")
	},
	"a dependent with the orphan finalizer": func(f family, then func(string)) {
		f.create("a", nil)
		f.create("b", []string{metav1.FinalizerOrphanDependents}, f.ref("a", true))
		f.create("c", nil, f.ref("b", true))
		f.delete("a", background)
		then("c")
	},
}

// severalEnds are the cases in which the real collector's workers race, so that it has one of two
// end states. The sim always has the same one.
var severalEnds = map[string]bool{"a dependent that has waited before": true, "a cycle with a finalizer": true}

// TestV1_GarbageCollection compares the end states of garbage collection, and where the order is
// fixed, the order of watch events.
func TestV1_GarbageCollection(t *testing.T) {
	onBothSides(t, func(s *side) {
		n := 0
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range collections {
				if !yield(name) {
					return
				}
			}
		}) {
			n++
			if s.real && severalEnds[name] {
				continue
			}
			f := family{s, fmt.Sprintf("gc-%d", n)}
			s.namespace(f.name)
			collections[name](f, func(want string) {
				s.Helper()
				if !s.eventually(want, f.state) {
					s.Errorf("case %q", name)
				}
			})
		}
		for policy, want := range map[metav1.DeletionPropagation]string{
			foreground: "MODIFIED a, DELETED b, DELETED a", background: "DELETED a, DELETED b", orphan: "MODIFIED a, MODIFIED b, DELETED a",
		} {
			f := family{s, "gc-events-" + strings.ToLower(string(policy))}
			s.namespace(f.name)
			f.create("a", nil)
			f.create("b", nil, f.ref("a", true))
			list, err := f.in(sim.ConfigMaps, f.name).List(s.Context(), metav1.ListOptions{})
			if err != nil {
				s.Fatal(err)
			}
			f.delete("a", policy)
			if got := s.events(f, list.GetResourceVersion(), strings.Count(want, ",")+1); got != want {
				s.Errorf("%s: events %s, want %s", policy, got, want)
			}
		}
	})
}

// events returns the next n watch events.
func (s *side) events(f family, version string, n int) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	w, err := f.in(sim.ConfigMaps, f.name).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		s.Fatal(err)
	}
	defer w.Stop()
	var all []string
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			s.Fatal(apierrors.FromObject(e.Object))
		}
		if e.Object.(*unstructured.Unstructured).GetName() == rootCA {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s", e.Type, e.Object.(*unstructured.Unstructured).GetName()))
		if len(all) == n {
			break
		}
	}
	return strings.Join(all, ", ")
}

// uid matches a uid in a message.
var uid = regexp.MustCompile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

// masked renders an outcome without what differs between two runs.
func masked(o *unstructured.Unstructured, err error) string {
	var status apierrors.APIStatus
	content := map[string]any{}
	switch {
	case errors.As(err, &status):
		data, _ := json.Marshal(status.Status())
		_ = json.Unmarshal(data, &content)
	case err != nil:
		return err.Error()
	case o != nil:
		content = o.DeepCopy().Object
	}
	mask(content)
	data, _ := json.Marshal(content)
	return uid.ReplaceAllString(string(data), "UID")
}

func mask(v any) {
	switch v := v.(type) {
	case map[string]any:
		for field, value := range v {
			switch field {
			case "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime":
				v[field] = "masked"
			case "managedFields":
				delete(v, field)
			default:
				mask(value)
			}
		}
	case []any:
		for _, value := range v {
			mask(value)
		}
	}
}

// TestV1_NamespaceDeletion compares every response of a namespace's life and the objects between.
func TestV1_NamespaceDeletion(t *testing.T) {
	transcripts := map[bool][]string{}
	onBothSides(t, func(s *side) { transcripts[s.real] = lifeOfNamespace(s) })
	if testing.Short() {
		return
	}
	for i, got := range transcripts[false] {
		testkit.Equal(t, got, transcripts[true][i], "step", i)
	}
	testkit.Len(t, transcripts[false], len(transcripts[true]))
}

func lifeOfNamespace(s *side) (transcript []string) {
	namespaces, maps := s.in(sim.Namespaces, ""), s.in(sim.ConfigMaps, "life")
	say := func(step string, o *unstructured.Unstructured, err error) {
		transcript = append(transcript, step+": "+masked(o, err))
	}
	object := func(kind, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind(kind)
		u.SetName(name)
		return u
	}
	read := func() *unstructured.Unstructured {
		s.Helper()
		o, err := namespaces.Get(s.Context(), "life", metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		return o
	}
	create := func(name string) {
		o, err := maps.Create(s.Context(), object("ConfigMap", name), metav1.CreateOptions{})
		say("create "+name, o, err)
	}
	create("too early")
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		o, err := namespaces.Get(s.Context(), name, metav1.GetOptions{})
		say("get "+name, o, err)
		if name != "kube-node-lease" {
			say("delete "+name, nil, namespaces.Delete(s.Context(), name, metav1.DeleteOptions{}))
		}
	}
	life := object("Namespace", "life")
	life.SetFinalizers([]string{"example.com/hold"})
	o, err := namespaces.Create(s.Context(), life, metav1.CreateOptions{})
	say("create", o, err)
	create("free")
	held := object("ConfigMap", "held")
	held.SetFinalizers([]string{"example.com/keep"})
	if _, err := maps.Create(s.Context(), held, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	unfinalized := read()
	unstructured.RemoveNestedField(unfinalized.Object, "spec", "finalizers")
	unstructured.RemoveNestedField(unfinalized.Object, "metadata", "resourceVersion")
	unfinalized.SetLabels(nil)
	o, err = namespaces.Update(s.Context(), unfinalized, metav1.UpdateOptions{})
	say("update", o, err)
	other := types.UID("other")
	say("precondition", nil, namespaces.Delete(s.Context(), "life", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}))
	say("dry run", nil, namespaces.Delete(s.Context(), "life", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	say("after dry run", read(), nil)
	say("delete", nil, namespaces.Delete(s.Context(), "life", metav1.DeleteOptions{}))
	create("too-late")
	generated := object("ConfigMap", "")
	generated.SetGenerateName("too-late-")
	o, err = maps.Create(s.Context(), generated, metav1.CreateOptions{})
	say("create generated", o, err)
	reason := func() string {
		for _, c := range nested(read(), "status", "conditions") {
			if c := c.(map[string]any); c["type"] == string(corev1.NamespaceContentRemaining) {
				return c["reason"].(string)
			}
		}
		return ""
	}
	finalizers := func() string { return fmt.Sprint(len(nested(read(), "spec", "finalizers"))) }
	s.eventually("SomeResourcesRemain", reason)
	s.eventually("1", finalizers)
	say("remaining", read(), nil)
	say("delete again", nil, namespaces.Delete(s.Context(), "life", metav1.DeleteOptions{}))
	family{s, "life"}.release("held")
	s.eventually("0", finalizers)
	say("drained", read(), nil)
	if _, err := namespaces.Patch(s.Context(), "life", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	_, err = namespaces.Get(s.Context(), "life", metav1.GetOptions{})
	say("gone", nil, err)
	return append(transcript, finalizeByHand(s, object)...)
}

// finalizeByHand shows a finalizer of the specification. Only the finalize subresource removes it.
func finalizeByHand(s *side, object func(kind, name string) *unstructured.Unstructured) (transcript []string) {
	namespaces := s.in(sim.Namespaces, "")
	u := object("Namespace", "by-hand")
	u.Object["spec"] = map[string]any{"finalizers": []any{"example.com/mine"}}
	o, err := namespaces.Create(s.Context(), u, metav1.CreateOptions{})
	transcript = append(transcript, "create: "+masked(o, err))
	if err := namespaces.Delete(s.Context(), "by-hand", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	var last *unstructured.Unstructured
	s.eventually("[example.com/mine]", func() string {
		if last, err = namespaces.Get(s.Context(), "by-hand", metav1.GetOptions{}); err != nil {
			s.Fatal(err)
		}
		return fmt.Sprint(nested(last, "spec", "finalizers"))
	})
	transcript = append(transcript, "drained: "+masked(last, nil))
	unstructured.RemoveNestedField(last.Object, "spec", "finalizers")
	last.SetLabels(nil)
	o, err = namespaces.Update(s.Context(), last, metav1.UpdateOptions{}, "finalize")
	transcript = append(transcript, "finalize: "+masked(o, err))
	_, err = namespaces.Get(s.Context(), "by-hand", metav1.GetOptions{})
	return append(transcript, "gone: "+masked(nil, err))
}

func nested(o *unstructured.Unstructured, path ...string) []any {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	return list
}

// TestNamespaceDeletion_PodsGoFirst shows that a Pod in its grace period holds the other content.
func TestNamespaceDeletion_PodsGoFirst(t *testing.T) {
	server := sim.NewServer(sim.Namespaces, sim.Pods, sim.ConfigMaps)
	defer server.Close()
	server.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "going", Name: "later"}})
	now, grace := int64(0), int64(30)
	server.Put(sim.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "going", Name: "first"},
		Spec:       corev1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: &grace},
	})
	c := dynamic.NewForConfigOrDie(server.Config())
	s := &side{T: t, Interface: c}
	testkit.NoError(t, s.in(sim.Namespaces, "").Delete(t.Context(), "going", metav1.DeleteOptions{}))
	if pod := server.Object(sim.Pods, "going", "first"); pod == nil || pod.GetDeletionTimestamp() == nil || server.Stored(sim.ConfigMaps) != 1 {
		t.Errorf("the pod is %v, with %d config maps", pod, server.Stored(sim.ConfigMaps))
	}
	testkit.NoError(t, s.in(sim.Pods, "going").Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	testkit.Equal(t, server.Stored(sim.Pods), 0)
	testkit.Equal(t, server.Stored(sim.ConfigMaps), 0)
	testkit.Equal(t, server.Object(sim.Namespaces, "", "going"), nil)
}
