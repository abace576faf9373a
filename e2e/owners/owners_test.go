// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Parcel is a custom resource that several controllers share.
type Parcel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Part `json:"spec,omitzero"`
	Status Part `json:"status,omitzero"`
}

// Part has a field and an element of each controller. Items is an atomic list.
type Part struct {
	Values map[string]string `json:"values,omitempty"`
	Items  []string          `json:"items,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *Parcel) DeepCopyObject() runtime.Object {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	for of, to := range map[*Part]*Part{&p.Spec: &c.Spec, &p.Status: &c.Status} {
		to.Values, to.Items = maps.Clone(of.Values), slices.Clone(of.Items)
	}
	return &c
}

var (
	kind = schema.GroupVersionKind{Group: "owners.setpoint.dev", Version: "v1", Kind: "Parcel"}
	name = types.NamespacedName{Namespace: "default", Name: "shared"}
)

// share is what one controller has in the object.
type share map[string]string

// shareOf returns what a controller has in an object.
func shareOf(controller string, p *Parcel) share {
	s := share{}
	add := func(where, what string) {
		if strings.HasPrefix(what, controller+".") || what == controller {
			s[where] += what
		}
	}
	for _, f := range p.Finalizers {
		add("finalizer", f)
	}
	for _, o := range p.OwnerReferences {
		add("owner", o.Name)
	}
	for where, values := range map[string]map[string]string{"label": p.Labels, "annotation": p.Annotations, "spec": p.Spec.Values, "status": p.Status.Values} {
		if value, ok := values[controller]; ok {
			s[where] = value
		}
	}
	for where, items := range map[string][]string{"spec item": p.Spec.Items, "status item": p.Status.Items} {
		for _, item := range items {
			add(where, item)
		}
	}
	return s
}

// change changes the share of a controller, in the part that a verb writes, or in both.
func change(r *rand.Rand, controller string, p *Parcel, spec, status bool) {
	toggle := func(list []string, item string) []string {
		without := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.HasPrefix(s, controller+".") })
		if len(without) < len(list) && r.IntN(2) == 0 {
			return without
		}
		return append(without, item)
	}
	set := func(values map[string]string) map[string]string {
		values = maps.Clone(values)
		if _, ok := values[controller]; ok && r.IntN(2) == 0 {
			delete(values, controller)
			return values
		}
		if values == nil {
			values = map[string]string{}
		}
		values[controller] = fmt.Sprint(r.IntN(1 << 30))
		return values
	}
	item := fmt.Sprintf("%s.%d", controller, r.IntN(1<<30))
	if status {
		p.Status.Values = set(p.Status.Values)
		p.Status.Items = toggle(p.Status.Items, item)
	}
	if !spec {
		return
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(6) {
		case 0:
			if p.DeletionTimestamp == nil || slices.Contains(p.Finalizers, controller+".example.com/f") {
				p.Finalizers = toggle(p.Finalizers, controller+".example.com/f")
			}
		case 1:
			refs := slices.DeleteFunc(slices.Clone(p.OwnerReferences), func(o metav1.OwnerReference) bool { return o.Name == controller })
			if len(refs) == len(p.OwnerReferences) {
				refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: controller, UID: types.UID("uid-of-" + controller)})
			}
			p.OwnerReferences = refs
		case 2:
			p.Labels = set(p.Labels)
		case 3:
			p.Annotations = set(p.Annotations)
		case 4:
			p.Spec.Values = set(p.Spec.Values)
		case 5:
			p.Spec.Items = toggle(p.Spec.Items, item)
		}
	}
}

func newScheme() *runtime.Scheme {
	known := runtime.NewScheme()
	known.AddKnownTypes(kind.GroupVersion(), &Parcel{})
	metav1.AddToGroupVersion(known, kind.GroupVersion())
	return known
}

// controllers share one object.
type controllers struct {
	t       *testing.T
	r       *rand.Rand
	names   []string
	handles map[string]*client.Handle[*Parcel]
	seen    []*Parcel // as stored, the newest last
	done    map[string]int
	refused int
}

func newControllers(t *testing.T, cfg *rest.Config, seed uint64) *controllers {
	known := newScheme()
	c := &controllers{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), names: []string{"a", "b", "c"}, //nolint:gosec // no secrets
		handles: map[string]*client.Handle[*Parcel]{}, done: map[string]int{},
	}
	for _, n := range c.names {
		one, err := client.New(cfg, client.Options{Scheme: known, FieldOwner: n})
		testkit.NoError(t, err)
		t.Cleanup(one.Close)
		c.handles[n] = client.For[*Parcel](one)
	}
	return c
}

// live returns the object as stored, or nil.
func (c *controllers) live() *Parcel {
	c.t.Helper()
	p, err := c.handles["a"].GetLive(c.t.Context(), name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// cached returns a copy of one of the last versions that were stored, or nil.
func (c *controllers) cached() *Parcel {
	if len(c.seen) == 0 {
		return nil
	}
	stale := c.seen[len(c.seen)-1-c.r.IntN(min(4, len(c.seen)))]
	if stale == nil {
		return nil
	}
	p, _ := stale.DeepCopyObject().(*Parcel)
	return p
}

func empty() *Parcel {
	return &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
}

// configuration is for an apply: a share, all of it or some.
func (c *controllers) configuration(controller, part string) client.ApplyConfiguration {
	metadata := map[string]any{"namespace": name.Namespace, "name": name.Name}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata}}
	value := fmt.Sprint(c.r.IntN(1 << 30))
	// Without a schema, as on the sim, an apply owns whole maps: one that leaves the map out would
	// remove the values of all.
	values := map[string]any{}
	u.Object[part] = map[string]any{"values": values}
	if c.r.IntN(4) > 0 {
		values[controller] = value
	}
	if part == "spec" {
		if c.r.IntN(2) == 0 {
			metadata["labels"] = map[string]any{controller: value}
		}
		if c.r.IntN(2) == 0 {
			metadata["finalizers"] = []any{controller + ".example.com/f"}
		}
		if c.r.IntN(2) == 0 {
			metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": controller, "uid": "uid-of-" + controller}}
		}
	}
	return client.UnstructuredConfiguration(u)
}

// act makes one call of a controller, with what it has in its cache. It returns the share that the
// controller wants, or nil if the call does not write all of it.
func (c *controllers) act(ctx context.Context, controller string) (verb string, want share, err error) {
	h, cached := c.handles[controller], c.cached()
	alter := func(spec, status bool) func(*Parcel) error {
		return func(p *Parcel) error {
			before, _ := p.DeepCopyObject().(*Parcel)
			change(c.r, controller, p, spec, status)
			if want = shareOf(controller, p); equality.Semantic.DeepEqual(before, p) {
				want = nil // nothing to write
			}
			return nil
		}
	}
	var options []client.Option
	if c.r.IntN(4) == 0 {
		options = append(options, client.OptimisticLock())
	}
	start := cached
	if start == nil || c.r.IntN(3) == 0 {
		start = empty()
	}
	switch verb = [...]string{
		"create", "create or update", "create or patch", "update", "update status", "patch from", "patch", "patch status", "apply", "apply status",
		"unless already", "ensure finalizer", "remove finalizer", "delete", "delete exactly",
	}[c.r.IntN(15)]; verb {
	case "create":
		p := empty()
		_ = alter(true, false)(p)
		_, err = h.Create(ctx, p)
	case "create or update":
		_, _, err = client.CreateOrUpdate(ctx, h, start, alter(true, false))
	case "create or patch":
		_, _, err = client.CreateOrPatch(ctx, h, start, alter(true, true), options...)
	case "update":
		if cached != nil {
			_ = alter(true, false)(cached)
			_, err = h.Update(ctx, cached)
		}
	case "update status":
		if cached != nil {
			_ = alter(false, true)(cached)
			_, err = h.UpdateStatus(ctx, cached)
		}
	case "patch from":
		if cached != nil {
			after, _ := cached.DeepCopyObject().(*Parcel)
			spec := c.r.IntN(2) == 0
			_ = alter(spec, !spec || c.r.IntN(2) == 0)(after)
			_, err = client.PatchFrom(ctx, h, cached, after, options...)
			want = nil // from a stale object: only what it changes
		}
	case "patch":
		_, err = h.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"values":{%q:"%d"}}}`, controller, c.r.IntN(1<<30)))
	case "patch status":
		_, err = h.PatchStatus(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"values":{%q:"%d"}}}`, controller, c.r.IntN(1<<30)))
	case "apply":
		_, err = h.Apply(ctx, c.configuration(controller, "spec"))
	case "apply status":
		_, err = h.ApplyStatus(ctx, c.configuration(controller, "status"))
	case "unless already":
		if cached != nil {
			_, err = h.Apply(ctx, c.configuration(controller, "spec"), client.UnlessAlready(cached))
		}
	case "ensure finalizer":
		if cached != nil {
			_, err = h.EnsureFinalizer(ctx, cached, controller+".example.com/f")
		}
	case "remove finalizer":
		if cached != nil {
			_, err = h.RemoveFinalizer(ctx, cached, controller+".example.com/f")
		}
	case "delete":
		if c.r.IntN(5) == 0 {
			err = h.Delete(ctx, name)
		}
	case "delete exactly":
		if cached != nil && c.r.IntN(3) == 0 {
			err = h.Delete(ctx, name, client.Preconditions(cached.UID, cached.ResourceVersion))
		}
	}
	return verb, want, err
}

// step makes one call, and judges it.
func (c *controllers) step(n int) {
	before := c.live()
	controller := c.names[c.r.IntN(len(c.names))]
	verb, want, err := c.act(c.t.Context(), controller)
	after := c.live()
	where := fmt.Sprintf("step %d: %s by %s: error %v", n, verb, controller, err)
	said := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || refused(err)
	if err != nil && !said {
		c.t.Errorf("%s: the error is no conflict", where)
	}
	for _, other := range c.names {
		was, is := share{}, share{}
		if before != nil {
			was = shareOf(other, before)
		}
		if after != nil {
			is = shareOf(other, after)
		}
		gone := before != nil && (after == nil || after.UID != before.UID)
		switch {
		case gone && len(before.Finalizers) > 0 && was["finalizer"] != "" && other != controller:
			c.t.Errorf("%s: the object is gone, and %s had a finalizer", where, other)
		case other != controller && !gone && !reflect.DeepEqual(was, is):
			c.t.Errorf("%s: %s had %v, and has %v", where, other, was, is)
		case other == controller && err == nil && want != nil && after != nil && !covers(is, want, verb):
			c.t.Errorf("%s: %s wants %v, and has %v", where, other, want, is)
		}
	}
	if before != nil && after != nil && before.UID == after.UID && before.DeletionTimestamp != nil && after.DeletionTimestamp == nil {
		c.t.Errorf("%s: it is no longer in deletion", where)
	}
	if err == nil {
		c.done[verb]++
	} else {
		c.refused++
	}
	c.seen = append(c.seen, after)
	if after != nil && len(after.ManagedFields) == 0 {
		c.remove() // see testUntracked
	}
}

// remove deletes the object, which has no finalizers.
func (c *controllers) remove() {
	testkit.Equal(c.t, c.handles["a"].Delete(c.t.Context(), name), nil)
	c.seen = append(c.seen, nil)
}

// covers reports whether a share has what a verb writes. Create and Update write no status.
func covers(is, want share, verb string) bool {
	for where, what := range want {
		if strings.HasPrefix(where, "status") && verb != "update status" && verb != "create or patch" {
			continue
		}
		if is[where] != what {
			return false
		}
	}
	return true
}

// refused reports whether the API server refuses a new finalizer of an object in deletion.
func refused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "no new finalizers can be added if the object is being deleted") ||
		strings.Contains(err.Error(), "the object is being deleted, and takes no new finalizers"))
}

func (c *controllers) run(steps int) {
	for n := range steps {
		if c.step(n); c.t.Failed() {
			return
		}
	}
	c.t.Logf("%d steps: %v; %d refused", steps, c.done, c.refused)
	if steps >= 10_000 && len(c.done) != 15 || c.refused == 0 {
		c.t.Errorf("not every verb was used, or nothing was refused")
	}
}

func seed(t *testing.T) uint64 {
	s := uint64(rand.Uint32()) //nolint:gosec // no secrets
	if n, err := strconv.ParseUint(os.Getenv("SETPOINT_OWNERS_SEED"), 10, 64); err == nil {
		s = n
	}
	t.Logf("repeat it with SETPOINT_OWNERS_SEED=%d", s)
	return s
}

// TestSharedObject_Sim: three controllers with own finalizers, owners and fields write one custom
// resource from stale caches by every verb. Nothing of another one is lost, or the call says
// conflict.
func TestSharedObject_Sim(t *testing.T) {
	api := sim.NewServer(parcels, sim.ConfigMaps)
	newControllers(t, api.Config(), seed(t)).run(10_000)
}

var parcels = sim.Resource{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Name: "parcels", Namespaced: true}

// TestSharedObject_RealServer is the same on the real control plane.
func TestSharedObject_RealServer(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{CRDs: []string{"testdata/parcels.yaml"}})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	cfg := cluster.Config()
	cfg.QPS = -1
	newControllers(t, cfg, seed(t)).run(500)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}
