// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Get reads an object into a variable of any declared kind. A kind is declared while it has a
// handle in the same form: typed, unstructured or metadata. into is a pointer such as
// &corev1.Pod{}. In the other two forms, its apiVersion and kind must be set. Get replaces *into
// with a copy and sets its kind. After an error *into is unchanged.
//
// Get waits and fails like [Handle.Get]. The error for an undeclared kind names the missing line.
// Of several handles, Get reads the one with the widest scope that covers the name, without
// selectors if possible. If several are left that may have different contents, the error names
// them.
func (c *Cache) Get(ctx context.Context, name types.NamespacedName, into Object) error {
	fail := func(err error) error { return fmt.Errorf("get %T %s: %w", into, object.Name(name), err) }
	if argument.IsNil(into) {
		return fail(errors.New("the object is nil; pass a pointer, such as &corev1.Pod{}"))
	}
	w := wanted{form: formOf(reflect.TypeOf(into)), covers: func(g *group) error {
		_, err := g.member(name)
		return err
	}}
	g, err := c.choose(ctx, into, w)
	if err != nil {
		return fail(err)
	}
	obj, err := c.reader(g).Get(ctx, name)
	if err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(g.key.gvk)
	if reflect.TypeOf(obj) != reflect.TypeOf(into) {
		return fail(misfit(reflect.TypeOf(into), obj))
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj).Elem())
	return nil
}

// List is Get for a list such as &corev1.PodList{}, &unstructured.UnstructuredList{} or
// &metav1.PartialObjectMetadataList{}. The last two need their apiVersion and kind, for example
// PodList. List replaces the items with copies, in no particular order, and sets their kind. A list
// of all namespaces fails if several handles cover different ones. After an UndecodableError, the
// list has the other objects.
func (c *Cache) List(ctx context.Context, into runtime.Object, o ListOptions) error {
	fail := func(err error) error { return fmt.Errorf("list %T: %w", into, err) }
	if argument.IsNil(into) || !meta.IsListType(into) {
		return fail(errors.New("it is not a list; pass a pointer, such as &corev1.PodList{}"))
	}
	w := wanted{list: true, everywhere: o.Namespace == "", covers: func(g *group) error {
		_, err := g.within(o.Namespace)
		return err
	}}
	switch into.(type) {
	case *unstructured.UnstructuredList:
		w.form = listwatch.Unstructured
	case *metav1.PartialObjectMetadataList:
		w.form = listwatch.Metadata
	}
	g, err := c.choose(ctx, into, w)
	if err != nil {
		return fail(err)
	}
	objects, left := c.reader(g).List(ctx, o)
	var u *UndecodableError
	if left != nil && !errors.As(left, &u) {
		return left
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		obj.GetObjectKind().SetGroupVersionKind(g.key.gvk)
		items = append(items, obj)
	}
	if err := meta.SetList(into, items); err != nil {
		return fail(err)
	}
	return left
}

type wanted struct {
	form             listwatch.Form
	list, everywhere bool               // everywhere is a list of all namespaces
	covers           func(*group) error // nil if the group covers what is read
}

func (c *Cache) choose(ctx context.Context, into runtime.Object, w wanted) (*group, error) {
	kinds, err := c.kindsOf(into, w)
	if err != nil {
		return nil, err
	}
	groups, err := c.declaredOf(ctx, kinds, w.form, into)
	if err != nil {
		return nil, err
	}
	var best []*group
	for _, g := range groups {
		if err = errors.Join(g.located(ctx), w.covers(g)); err != nil {
			continue
		}
		if len(best) > 0 && g.narrowness() < best[0].narrowness() {
			best = nil
		}
		if len(best) == 0 || g.narrowness() == best[0].narrowness() {
			best = append(best, g)
		}
	}
	if len(best) == 0 {
		return nil, err
	}
	for _, g := range best[1:] {
		if g.key != best[0].key || w.partial(g) && !g.sameScope(best[0]) {
			return nil, fmt.Errorf("several handles may answer differently: %s, and %s; read with one of the handles, or declare only one to the controller", best[0], g)
		}
	}
	return best[0], nil
}

// partial reports whether a list may need more than the group has.
func (w wanted) partial(g *group) bool {
	return w.list && (g.scope.Names != nil || w.everywhere && g.scope.Namespaces != nil)
}

// narrowness orders the groups of a kind: everything, namespaces, names. Those with selectors come
// later, and informers that this package did not make last.
func (g *group) narrowness() (n int) {
	switch {
	case g.scope.Names != nil:
		n = 2
	case g.scope.Namespaces != nil && g.members.Load().everything == nil:
		n = 1
	}
	if g.key.selects() || g.key.slots != nil || selectsNothing(g.scope.Labels) || selectsNothing(g.scope.Fields) {
		n += 10
	}
	if g.key.foreign != nil {
		n += 100
	}
	return n
}

func (c *Cache) kindsOf(obj runtime.Object, w wanted) ([]schema.GroupVersionKind, error) {
	kinds := []schema.GroupVersionKind{obj.GetObjectKind().GroupVersionKind()}
	if w.form == listwatch.Typed {
		known, err := c.kinds(obj)
		if err != nil {
			return nil, err
		}
		kinds = slices.Clone(known)
	}
	if kinds[0].Kind == "" || kinds[0].Version == "" {
		return nil, errors.New("it has no kind; set its apiVersion and kind")
	}
	for n := range kinds {
		single, isList := strings.CutSuffix(kinds[n].Kind, "List")
		if w.list && !isList {
			return nil, fmt.Errorf("its kind is %s; set it to %[1]sList", kinds[n].Kind)
		}
		if w.list {
			kinds[n].Kind = single
		}
	}
	return kinds, nil
}

func (c *Cache) declaredOf(ctx context.Context, kinds []schema.GroupVersionKind, form listwatch.Form, into runtime.Object) (groups []*group, err error) {
	for _, kind := range kinds {
		groups = append(groups, c.groupsOf(kind)...)
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return g.key.form != form })
	if len(groups) == 0 && form == listwatch.Typed {
		return nil, fmt.Errorf("%s has no handle; add one before the cache runs, with cache.For[%s](c)", kinds[0].Kind, singleOf(into))
	} else if len(groups) == 0 {
		return nil, fmt.Errorf("%s has no handle in the %s form; add one before the cache runs, with cache.ForScope[%s](c, cache.Scope{Kind: …})", kinds[0].Kind, form, singleOf(into))
	}
	if d, ok := ctx.Value(declarationsKey{}).(*declarations); ok {
		first := groups[0]
		groups = slices.DeleteFunc(groups, func(g *group) bool { return d.missing(g) != nil })
		if len(groups) == 0 {
			return nil, d.missing(first)
		}
	}
	return groups, nil
}

func singleOf(obj runtime.Object) string {
	t := reflect.TypeOf(obj)
	if items, err := meta.GetItemsPtr(obj); err == nil {
		return "*" + reflect.TypeOf(items).Elem().Elem().String()
	}
	return t.String()
}

func (c *Cache) reader(g *group) *Handle[Object] {
	return &Handle[Object]{handle{of: reflect.TypeFor[Object](), cache: c, gvk: g.key.gvk, group: g, released: &atomic.Bool{}}}
}
