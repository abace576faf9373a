// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/sweep"
)

// view reads the objects of a kind in one of the forms.
type view interface {
	get(ctx context.Context, key types.NamespacedName) (client.Object, error)
	list(ctx context.Context, namespace string) ([]client.Object, error)
	self() source.Source[types.NamespacedName]
	owned(by view) source.Source[types.NamespacedName]
	ownerOf() handler.Handler[types.NamespacedName]
	readBy(c *controller.Controller[types.NamespacedName])
}

type form[T client.Object] struct{ *cache.Handle[T] }

func (f form[T]) get(ctx context.Context, key types.NamespacedName) (client.Object, error) {
	return f.Get(ctx, key)
}

func (f form[T]) list(ctx context.Context, namespace string) (all []client.Object, err error) {
	objects, err := f.List(ctx, cache.ListOptions{Namespace: namespace})
	for _, o := range objects {
		all = append(all, o)
	}
	return all, err
}

func (f form[T]) self() source.Source[types.NamespacedName] {
	return source.Kind(f.Handle, handler.Self())
}

func (f form[T]) owned(by view) source.Source[types.NamespacedName] {
	return source.Kind(f.Handle, by.ownerOf())
}

func (f form[T]) ownerOf() handler.Handler[types.NamespacedName] { return handler.Owner(f.Handle) }

func (f form[T]) readBy(c *controller.Controller[types.NamespacedName]) { c.Reads(f.Handle) }

func typed[T client.Object](c *cache.Cache, s cache.Scope) view {
	return form[T]{cache.ForScope[T](c, s)}
}

// open returns the view of a core kind. Of mixed forms, the owner's is typed and the others' not.
func open[T client.Object](mgr *manager.Manager, as string, storage cache.Storage, kind string, place int) view {
	s := cache.Scope{Storage: storage}
	if as == "mixed" {
		as = []string{"typed", "unstructured", "metadata"}[place]
	}
	k := corev1.SchemeGroupVersion.WithKind(kind)
	switch as {
	case "unstructured":
		s.Kind = k
		return typed[*unstructured.Unstructured](mgr.Cache(), s)
	case "metadata":
		return typed[*metav1.PartialObjectMetadata](mgr.Cache(), cache.Scope{Kind: k})
	}
	return typed[T](mgr.Cache(), s)
}

// brood keeps a Secret with a generated name and a named ServiceAccount for each ConfigMap. The
// ServiceAccount has no owner: a finalizer deletes it. All that counts is in annotations, so each
// form shows it.
//
// In the mixed form, a second informer of ConfigMaps makes the keys due.
type brood struct {
	maps, secrets, accounts view
	client                  *client.Client
}

const (
	want      = "example.com/want"
	done      = "example.com/done"
	finalizer = "example.com/brood"
)

func (b *brood) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	owner, err := b.maps.get(ctx, key)
	switch {
	case err != nil:
		return controller.Result{}, client.IgnoreNotFound(err)
	case owner.GetDeletionTimestamp() != nil:
		return controller.Result{}, b.finish(ctx, key, owner)
	case len(owner.GetFinalizers()) == 0:
		return controller.Result{}, b.patch(ctx, key, owner, map[string]any{"finalizers": []string{finalizer}})
	}
	if _, err := b.accounts.get(ctx, key); apierrors.IsNotFound(err) {
		_, err = client.For[*corev1.ServiceAccount](b.client).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		if err != nil {
			return controller.Result{}, err
		}
	} else if err != nil {
		return controller.Result{}, err
	}
	if err := b.child(ctx, owner); err != nil || owner.GetAnnotations()[done] == owner.GetAnnotations()[want] {
		return controller.Result{}, err
	}
	return controller.Result{}, b.patch(ctx, key, owner, map[string]any{"annotations": map[string]string{done: owner.GetAnnotations()[want]}})
}

// child makes the only child of an owner, or brings it up to date.
func (b *brood) child(ctx context.Context, owner client.Object) error {
	all, err := b.secrets.list(ctx, owner.GetNamespace())
	if err != nil {
		return err
	}
	secrets := client.For[*corev1.Secret](b.client)
	for _, s := range all {
		if !metav1.IsControlledBy(s, owner) || s.GetDeletionTimestamp() != nil {
			continue
		}
		if s.GetAnnotations()[want] == owner.GetAnnotations()[want] {
			return nil
		}
		p := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, s.GetResourceVersion(), want, owner.GetAnnotations()[want])
		_, err := secrets.Patch(ctx, types.NamespacedName{Namespace: s.GetNamespace(), Name: s.GetName()}, types.MergePatchType, []byte(p))
		return err
	}
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: owner.GetNamespace(), GenerateName: owner.GetName() + "-", Annotations: map[string]string{want: owner.GetAnnotations()[want]},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}})
	return err
}

func (b *brood) finish(ctx context.Context, key types.NamespacedName, owner client.Object) error {
	if len(owner.GetFinalizers()) == 0 {
		return nil
	}
	err := client.For[*corev1.ServiceAccount](b.client).Delete(ctx, key)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return b.patch(ctx, key, owner, map[string]any{"finalizers": nil})
}

func (b *brood) patch(ctx context.Context, key types.NamespacedName, owner client.Object, metadata map[string]any) error {
	metadata["resourceVersion"] = owner.GetResourceVersion()
	p, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = client.For[*corev1.ConfigMap](b.client).Patch(ctx, key, types.MergePatchType, p)
	return client.IgnoreNotFound(err)
}

// broods returns the operator, with one leader or as the member of a shard group.
func broods(as string, storage cache.Storage, sharded bool) func(p sweep.Process) (sweep.Operator, error) {
	return func(p sweep.Process) (sweep.Operator, error) {
		o := manager.Options{Name: "brood", Logger: p.Logger, LeaderElection: &leaderelection.Options{Namespace: "default", Lease: "brood"}}
		if sharded {
			o.LeaderElection = &shard.Options{Election: leaderelection.Options{Namespace: "default", Lease: "brood"}}
		}
		mgr := manager.New(p.Config, o)
		b := &brood{
			open[*corev1.ConfigMap](mgr, as, storage, "ConfigMap", 0), open[*corev1.Secret](mgr, as, storage, "Secret", 1),
			open[*corev1.ServiceAccount](mgr, as, storage, "ServiceAccount", 2), mgr.Client(),
		}
		due := b.maps
		if as == "mixed" {
			due = open[*corev1.ConfigMap](mgr, "metadata", storage, "ConfigMap", 0)
		}
		c := controller.New("brood", b, controller.Options{})
		c.Watch(due.self())
		b.maps.readBy(c)
		c.Watch(b.secrets.owned(b.maps))
		c.Watch(b.accounts.self())
		mgr.Add(c)
		return mgr, nil
	}
}

func broodScenario(operator func(p sweep.Process) (sweep.Operator, error)) sweep.Scenario {
	maps := client.For[*corev1.ConfigMap]
	return sweep.Scenario{
		Scheme:   scheme.Scheme,
		Operator: operator,
		Steps: []sweep.Step{
			{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
				_, err := maps(c).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, Annotations: map[string]string{want: "1"}}})
				return err
			}},
			{Name: "change", Do: func(ctx context.Context, c *client.Client) error {
				_, err := maps(c).Patch(ctx, a, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+want+`":"2"}}}`))
				return err
			}},
			{Name: "delete the child", Do: func(ctx context.Context, c *client.Client) error {
				return client.For[*corev1.Secret](c).DeleteAll(ctx, client.ListOptions{Namespace: a.Namespace})
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return maps(c).Delete(ctx, a) }},
		},
		Invariants: []sweep.Invariant{{Name: "one child", Holds: func(s *sweep.State) error {
			if n := len(sweep.List[*corev1.Secret](s)); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		}}},
	}
}

// TestBrood sweeps an operator of three kinds in each form. The short run has one of them.
func TestBrood(t *testing.T) {
	for _, c := range []struct {
		as      string
		storage cache.Storage
		sharded bool
	}{
		{"mixed", cache.Packed, false},
		{"typed", cache.Packed, true}, {"typed", cache.Decoded, false},
		{"unstructured", cache.Packed, false}, {"unstructured", cache.Decoded, true}, {"metadata", cache.Decoded, false},
	} {
		t.Run(fmt.Sprintf("%s, %s, sharded %t", c.as, c.storage, c.sharded), func(t *testing.T) {
			if c.as != "mixed" && os.Getenv("SETPOINT_FULL") == "" {
				t.Skip("set SETPOINT_FULL=1")
			}
			sweep.Run(t, broodScenario(broods(c.as, c.storage, c.sharded)))
		})
	}
}
