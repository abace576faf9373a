// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const (
	namespace = "default"
	keep      = "mix.setpoint.dev/keep"     // finalizer
	observed  = "mix.setpoint.dev/observed" // annotation: the value of the last complete Reconcile
	bad       = "bad"                       // prefix of values that make a Reconcile fail
)

var boards = schema.GroupVersionResource{Group: "mix.setpoint.dev", Version: "v1", Resource: "boards"}

// Board is a custom resource.
type Board struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Value string `json:"value"`
}

// DeepCopyObject implements runtime.Object.
func (b *Board) DeepCopyObject() runtime.Object {
	c := *b
	b.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// BoardList is a list of boards.
type BoardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Board `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *BoardList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]Board(nil), l.Items...)
	return &c
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	s.AddKnownTypes(boards.GroupVersion(), &Board{}, &BoardList{})
	metav1.AddToGroupVersion(s, boards.GroupVersion())
	return s
}

// operator keeps a ConfigMap, named like its board, and a Secret, named by the API server. It
// deletes old ConfigMaps whose board is not in its cache. It decides by its caches only, and not
// while they are stale.
type operator struct {
	births  *births
	client  *client.Client
	boards  *cache.Handle[*Board]
	maps    *cache.Handle[*corev1.ConfigMap]
	watched *cache.Handle[*metav1.PartialObjectMetadata] // the metadata of Secrets
	secrets *cache.Handle[*corev1.Secret]
}

func addOperator(m *manager.Manager, b *births) {
	c := m.Cache()
	o := &operator{
		births: b,
		client: m.Client(), boards: cache.For[*Board](c), maps: cache.For[*corev1.ConfigMap](c), secrets: cache.For[*corev1.Secret](c),
		watched: cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")}),
	}
	control := controller.New("boards", o, controller.Options{Workers: 4, Hook: hook.On(func(e *hook.Awaited) { b.waited(*e) })})
	control.Watch(source.Kind(o.boards, handler.Self()))
	control.Watch(source.Kind(o.maps, handler.Owner(o.boards)))
	control.Watch(source.Kind(o.watched, handler.Owner(o.boards)))
	control.Reads(o.secrets)
	m.Add(control)
}

// Reconcile implements controller.Reconciler.
func (o *operator) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if err := controller.Stale(ctx); err != nil { // the caches may lack its own writes
		return controller.Result{}, err
	}
	if err := o.sweep(ctx); err != nil {
		return controller.Result{}, err
	}
	b, err := o.boards.Get(ctx, key)
	switch {
	case err != nil:
		return controller.Result{}, client.IgnoreNotFound(err)
	case b.DeletionTimestamp != nil:
		return controller.Result{}, o.end(ctx, b)
	}
	all := client.For[*Board](o.client)
	if b, err = all.EnsureFinalizer(ctx, b, keep); err != nil {
		return controller.Result{}, err
	}
	failed := errors.Join(o.keepMap(ctx, b), o.keepSecret(ctx, b))
	seen := b.Value
	if strings.HasPrefix(b.Value, bad) {
		failed = errors.Join(failed, fmt.Errorf("the value %q is bad", b.Value))
	}
	if failed != nil {
		seen = b.Annotations[observed]
	}
	// Like many operators, it also reports a failure. That is often a no-op.
	_, err = all.Patch(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, b.UID, observed, seen))
	return controller.Result{}, errors.Join(failed, err)
}

// sweep deletes ConfigMaps of boards that do not exist. A board that does not fit its Go type does.
func (o *operator) sweep(ctx context.Context) error {
	exist := map[types.UID]bool{}
	all, err := o.boards.List(ctx, cache.ListOptions{})
	if errors.As(err, new(*cache.UndecodableError)) {
		return nil // the others must not fail because of one board
	}
	for _, b := range all {
		exist[b.UID] = true
	}
	if err != nil {
		return err
	}
	maps, err := o.maps.List(ctx, cache.ListOptions{})
	for _, m := range maps {
		of := metav1.GetControllerOf(m)
		if err != nil || of == nil || exist[of.UID] || time.Since(m.CreationTimestamp.Time) < time.Minute {
			continue
		}
		err = client.IgnoreNotFound(client.For[*corev1.ConfigMap](o.client).Delete(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}))
	}
	return err
}

func (o *operator) keepMap(ctx context.Context, b *Board) error {
	all := client.For[*corev1.ConfigMap](o.client)
	m, err := o.maps.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	switch {
	case apierrors.IsNotFound(err):
		_, err = all.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, OwnerReferences: []metav1.OwnerReference{*ownerOf(b)}},
			Data:       map[string]string{"value": b.Value},
		})
		o.births.add("config map", b.UID, err)
	case err == nil && !metav1.IsControlledBy(m, b):
		err = fmt.Errorf("the config map %s belongs to another board", m.Name)
	case err == nil && m.Data["value"] != b.Value:
		m.Data = map[string]string{"value": b.Value}
		_, err = all.Update(ctx, m)
	}
	return err
}

func (o *operator) keepSecret(ctx context.Context, b *Board) error {
	all := client.For[*corev1.Secret](o.client)
	for m, err := range o.watched.Owned(ctx, b.UID, cache.ListOptions{}) {
		if err != nil {
			return err
		}
		s, err := o.secrets.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
		if err != nil {
			return err
		}
		if string(s.Data["value"]) != b.Value {
			s.Data = map[string][]byte{"value": []byte(b.Value)}
			_, err = all.Update(ctx, s)
		}
		return err
	}
	_, err := all.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, GenerateName: b.Name + "-", OwnerReferences: []metav1.OwnerReference{*ownerOf(b)}},
		Data:       map[string][]byte{"value": []byte(b.Value)},
	})
	o.births.add("secret", b.UID, err)
	return err
}

func ownerOf(b *Board) *metav1.OwnerReference {
	return metav1.NewControllerRef(b, boards.GroupVersion().WithKind("Board"))
}

// end deletes what a board has, and lets it go.
func (o *operator) end(ctx context.Context, b *Board) error {
	n := 0
	for m, err := range o.watched.Owned(ctx, b.UID, cache.ListOptions{}) {
		if n++; n > 1 {
			o.births.double(b.UID)
		}
		if err == nil {
			err = client.IgnoreNotFound(client.For[*corev1.Secret](o.client).Delete(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}))
		}
		if err != nil {
			return err
		}
	}
	m, err := o.maps.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	if err == nil && metav1.IsControlledBy(m, b) {
		err = client.For[*corev1.ConfigMap](o.client).Delete(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	_, err = client.For[*Board](o.client).RemoveFinalizer(ctx, b, keep)
	return client.IgnoreNotFound(err)
}
