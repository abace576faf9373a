// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// Labels, annotations and finalizers of the outage harness's operator.
const (
	ofLamp = "scenario.setpoint.dev/lamp"     // label: the name of the lamp
	ofUID  = "scenario.setpoint.dev/lamp-uid" // label: its UID
	// Annotation of a lamp: the watts of the last complete Reconcile.
	observed   = "scenario.setpoint.dev/observed"
	switchOff  = "scenario.setpoint.dev/switch-off"
	wattsOfMap = "watts"
)

// outageOperator keeps for each Lamp an owned Secret, named by the API server, and an owned
// ConfigMap with the lamp's watts. It also keeps a ServiceAccount in another namespace, which no
// owner reference can cover; the lamp's finalizer does that. Like other operators it decides by its
// caches, and never checks twice.
type outageOperator struct {
	namespace, outside string
	heeds              bool // it returns what Stale says
	history            *history

	manager  *manager.Manager
	control  *controller.Controller[types.NamespacedName]
	lamps    *cache.Handle[*Lamp]
	maps     *cache.Handle[*corev1.ConfigMap]
	secrets  *cache.Handle[*corev1.Secret]
	accounts *cache.Handle[*corev1.ServiceAccount]

	runs, stale, unseen, uncertain, doubts, expired atomic.Int64

	mu    sync.Mutex // guards what follows
	wrote map[types.NamespacedName]map[string]ownWrite
}

// ownWrite is a key's last write that created, changed or deleted an object.
type ownWrite struct {
	resource  string
	name      types.NamespacedName
	uid       types.UID
	version   string
	gone      bool
	uncertain string // why it is not known
}

func newOutageOperator(m *manager.Manager, h *history, namespace, outside string, heeds bool) *outageOperator {
	o := &outageOperator{
		namespace: namespace, outside: outside, heeds: heeds, history: h, manager: m,
		wrote: map[types.NamespacedName]map[string]ownWrite{},
	}
	here, there := cache.Scope{Namespaces: cache.NewSet(namespace)}, cache.Scope{Namespaces: cache.NewSet(outside)}
	o.lamps = cache.ForScope[*Lamp](m.Cache(), here)
	o.maps = cache.ForScope[*corev1.ConfigMap](m.Cache(), here)
	o.secrets = cache.ForScope[*corev1.Secret](m.Cache(), here)
	o.accounts = cache.ForScope[*corev1.ServiceAccount](m.Cache(), there)
	c := controller.New("lamps", o, controller.Options{
		Workers: 4, Hook: hook.On(func(e *hook.Awaited) { o.awaited(*e) }),
		// So that a machine on which a start takes longer than the default does not matter.
		ReadYourWrites: 5 * time.Minute,
	})
	c.Watch(source.Kind(o.lamps, handler.Self()))
	c.Watch(source.Kind(o.maps, handler.Owner(o.lamps)))
	c.Watch(source.Kind(o.secrets, handler.Owner(o.lamps)))
	c.Watch(source.Kind(o.accounts, handler.Map(func(_ context.Context, a *corev1.ServiceAccount) ([]types.NamespacedName, error) {
		if a.Labels[ofLamp] == "" {
			return nil, nil
		}
		return []types.NamespacedName{{Namespace: namespace, Name: a.Labels[ofLamp]}}, nil
	})))
	m.Add(c)
	o.control = c
	return o
}

func (o *outageOperator) awaited(a hook.Awaited) {
	if a.Expired {
		o.expired.Add(1)
	}
	if a.Doubts != nil {
		o.doubts.Add(1)
	}
}

// Reconcile implements controller.Reconciler.
func (o *outageOperator) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	o.runs.Add(1)
	t := &trace{history: o.history, key: key}
	defer t.end()
	o.compareWithWrites(ctx, t)
	if err := controller.Stale(ctx); err != nil {
		o.stale.Add(1)
		t.note("stale: %v", err)
		if o.heeds {
			return controller.Result{}, err
		}
	}
	lamp, err := o.lamps.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		t.note("no lamp")
		return controller.Result{}, nil
	}
	if err == nil {
		t.note("lamp %s v%s watts=%d deleting=%t", short(lamp.UID), lamp.ResourceVersion, lamp.Watts, lamp.DeletionTimestamp != nil)
		if lamp.DeletionTimestamp != nil {
			err = o.end(ctx, t, lamp)
		} else {
			err = o.keep(ctx, t, lamp)
		}
	}
	if err != nil {
		t.note("error: %v", err)
	}
	return controller.Result{}, err
}

// keep creates a lamp's missing objects.
func (o *outageOperator) keep(ctx context.Context, t *trace, lamp *Lamp) error {
	all := client.For[*Lamp](o.manager.Client())
	with, err := all.EnsureFinalizer(ctx, lamp, switchOff)
	if with != lamp {
		o.did(t, "lamps", "finalizer", with, err)
	}
	if err != nil {
		return err
	}
	lamp = with
	for _, step := range []func(context.Context, *trace, *Lamp) error{o.keepAccount, o.keepSecret, o.keepMap} {
		if err := step(ctx, t, lamp); err != nil {
			return err
		}
	}
	if want := strconv.Itoa(lamp.Watts); lamp.Annotations[observed] != want {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`, lamp.UID, lamp.ResourceVersion, observed, want)
		lamp, err = all.Patch(ctx, t.key, types.MergePatchType, []byte(patch))
		o.did(t, "lamps", "patch", lamp, err)
	}
	return err
}

func (o *outageOperator) keepAccount(ctx context.Context, t *trace, lamp *Lamp) error {
	mine, err := o.accountsOf(ctx, lamp)
	t.note("accounts %s", namesOf(mine))
	if err != nil || len(mine) > 0 {
		return err
	}
	a, err := client.For[*corev1.ServiceAccount](o.manager.Client()).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.outside, GenerateName: lamp.Name + "-", Labels: map[string]string{ofLamp: lamp.Name, ofUID: string(lamp.UID)},
	}})
	o.did(t, "serviceaccounts", "create", a, err)
	return err
}

func (o *outageOperator) accountsOf(ctx context.Context, lamp *Lamp) ([]*corev1.ServiceAccount, error) {
	all, err := o.accounts.List(ctx, cache.ListOptions{})
	return slices.DeleteFunc(all, func(a *corev1.ServiceAccount) bool {
		return a.Labels[ofUID] != string(lamp.UID) || a.DeletionTimestamp != nil
	}), err
}

func (o *outageOperator) keepSecret(ctx context.Context, t *trace, lamp *Lamp) error {
	mine, err := collectOwned(ctx, o.secrets, lamp)
	t.note("secrets %s", namesOf(mine))
	if err != nil || len(mine) > 0 {
		return err
	}
	s, err := client.For[*corev1.Secret](o.manager.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: lamp.Namespace, GenerateName: lamp.Name + "-", OwnerReferences: []metav1.OwnerReference{*ownerOf(lamp)},
	}})
	o.did(t, "secrets", "create", s, err)
	return err
}

// keepMap writes by apply, update or patch, depending on the lamp's name.
func (o *outageOperator) keepMap(ctx context.Context, t *trace, lamp *Lamp) error {
	all := client.For[*corev1.ConfigMap](o.manager.Client())
	want := strconv.Itoa(lamp.Watts)
	m, err := o.maps.Get(ctx, t.key)
	switch {
	case apierrors.IsNotFound(err):
		t.note("no map")
		m = nil
	case err != nil:
		return err
	default:
		t.note("map %s v%s watts=%s", short(m.UID), m.ResourceVersion, m.Data[wattsOfMap])
		if !metav1.IsControlledBy(m, lamp) {
			return fmt.Errorf("the ConfigMap %s is another lamp's", m.Name)
		}
	}
	way := lamp.Name[len(lamp.Name)-1] % 3
	switch {
	case way == 0:
		desired := corev1ac.ConfigMap(lamp.Name, lamp.Namespace).WithData(map[string]string{wattsOfMap: want}).WithOwnerReferences(o.lamps.OwnerRef(lamp))
		var live client.Object
		if m != nil {
			live = m
		}
		made, err := all.Apply(ctx, desired, client.UnlessAlready(live))
		o.did(t, "configmaps", "apply", made, err)
		return err
	case m == nil:
		made, err := all.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: lamp.Namespace, Name: lamp.Name, OwnerReferences: []metav1.OwnerReference{*ownerOf(lamp)}},
			Data:       map[string]string{wattsOfMap: want},
		})
		o.did(t, "configmaps", "create", made, err)
		return err
	case m.Data[wattsOfMap] == want:
		return nil
	case way == 1:
		m.Data = map[string]string{wattsOfMap: want}
		made, err := all.Update(ctx, m)
		o.did(t, "configmaps", "update", made, err)
		return err
	default:
		made, err := all.Patch(ctx, t.key, types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, wattsOfMap, want))
		o.did(t, "configmaps", "patch", made, err)
		return err
	}
}

// end removes a lamp's objects, and then the finalizer.
func (o *outageOperator) end(ctx context.Context, t *trace, lamp *Lamp) error {
	if !slices.Contains(lamp.Finalizers, switchOff) {
		return nil
	}
	accounts, err := o.accountsOf(ctx, lamp)
	errs := []error{err}
	for _, a := range accounts {
		errs = append(errs, deleteOne[*corev1.ServiceAccount](ctx, o, t, "serviceaccounts", a))
	}
	secrets, err := collectOwned(ctx, o.secrets, lamp)
	errs = append(errs, err)
	for _, s := range secrets {
		errs = append(errs, deleteOne[*corev1.Secret](ctx, o, t, "secrets", s))
	}
	maps, err := collectOwned(ctx, o.maps, lamp)
	errs = append(errs, err)
	for _, m := range maps {
		errs = append(errs, deleteOne[*corev1.ConfigMap](ctx, o, t, "configmaps", m))
	}
	t.note("end: accounts %s secrets %s maps %s", namesOf(accounts), namesOf(secrets), namesOf(maps))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	gone, err := client.For[*Lamp](o.manager.Client()).RemoveFinalizer(ctx, lamp, switchOff)
	o.did(t, "lamps", "end", gone, err)
	return err
}

func deleteOne[T client.Object](ctx context.Context, o *outageOperator, t *trace, resource string, obj T) error {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	err := client.For[T](o.manager.Client()).Delete(ctx, name, client.Preconditions(obj.GetUID(), ""))
	t.note("delete %s %s %s: %v", resource, name.Name, short(obj.GetUID()), err)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		o.remember(t.key, ownWrite{resource: resource, name: name, uid: obj.GetUID(), gone: true})
	}
	return err
}

func collectOwned[T cache.Object](ctx context.Context, h *cache.Handle[T], lamp *Lamp) ([]T, error) {
	all, err := client.Collect(h.Owned(ctx, lamp.UID, cache.ListOptions{}))
	return slices.DeleteFunc(all, func(obj T) bool { return obj.GetDeletionTimestamp() != nil }), err
}

func ownerOf(lamp *Lamp) *metav1.OwnerReference {
	return metav1.NewControllerRef(lamp, lamps.GroupVersion().WithKind("Lamp"))
}

func namesOf[T metav1.Object](all []T) []string {
	found := make([]string, 0, len(all))
	for _, obj := range all {
		found = append(found, obj.GetName()+"/"+short(obj.GetUID()))
	}
	return found
}

func short(uid types.UID) string { return string(uid[:min(8, len(uid))]) }

// trace records what one Reconcile reads and does.
type trace struct {
	history *history
	key     types.NamespacedName
	began   time.Time
	notes   []string
}

func (t *trace) note(format string, args ...any) {
	if t.began.IsZero() {
		t.began = time.Now()
	}
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *trace) end() { t.history.add(t.key.Name, t.began, t.notes) }
