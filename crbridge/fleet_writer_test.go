// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	theirclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// Sorts of writes: an object's name begins with its sort.
const (
	versioned = "versioned" // an update with the version of the last one
	patched   = "patched"   // a patch without a version
	task      = "task"      // an update by a Reconcile, with the version in the cache
)

// eachSort is the number of objects of each sort that a leader writes continuously.
const eachSort = 2

// pace is the pause between two writes of one object.
const pace = 20 * time.Millisecond

func nameOf(sort string, i int) string { return sort + "-" + strconv.Itoa(i) }

// store reads and writes ConfigMaps without a cache.
type store interface {
	get(ctx context.Context, name string) (*corev1.ConfigMap, error)
	create(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error)
	update(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error)
	patch(ctx context.Context, name string, body []byte) error
}

// writer writes continuously in each term. Like badly written code, it does not stop by itself when
// a term of Setpoint is lost; the fence stops it.
type writer struct {
	*replica

	store store
}

// lead writes in one term until it is stopped or refused.
func (w *writer) lead(ctx context.Context) error {
	defer w.tell(lost, "")
	objects := make([]*corev1.ConfigMap, eachSort)
	for i := range objects {
		// Write each versioned object first: writes of an older term are refused from then on.
		var err error
		if objects[i], err = w.claim(ctx, nameOf(versioned, i)); err != nil {
			return nil //nolint:nilerr // the term ended before its first write
		}
	}
	w.tell(leads, "")
	var writing sync.WaitGroup
	for i := range eachSort {
		writing.Go(func() { w.update(ctx, objects[i]) })
		writing.Go(func() { w.patch(ctx, nameOf(patched, i)) })
	}
	writing.Wait()
	return nil
}

// claim writes an object at its current version, or creates it.
func (w *writer) claim(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	for {
		once, cancel := w.brief(ctx)
		object, err := w.store.get(once, name)
		switch {
		case apierrors.IsNotFound(err):
			object, err = w.store.create(once, w.next(w.object(name)))
		case err == nil:
			object, err = w.store.update(once, w.next(object))
		}
		cancel()
		if err == nil {
			return object, nil
		}
		if !w.goesOn(ctx, err) {
			return nil, err
		}
	}
}

func (w *writer) object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
}

// next prepares the next version of an object.
func (w *writer) next(object *corev1.ConfigMap) *corev1.ConfigMap {
	n, _ := strconv.Atoi(object.Data["n"]) // 0 if absent
	object = object.DeepCopy()
	object.Data = map[string]string{"n": strconv.Itoa(n + 1), "by": w.Identity}
	return object
}

// update updates an object repeatedly, each time with the version of the last update. It ends when
// another replica has written the object.
func (w *writer) update(ctx context.Context, object *corev1.ConfigMap) {
	for {
		once, cancel := w.brief(ctx)
		written, err := w.store.update(once, w.next(object))
		if apierrors.IsConflict(err) { // the answer to an update was lost, or another leads
			written, err = w.store.get(once, object.Name)
			if err == nil && written.Data["by"] != w.Identity {
				cancel()
				return
			}
		}
		cancel()
		if err == nil {
			object = written
		}
		if !w.goesOn(ctx, err) {
			return
		}
	}
}

// patch patches an object repeatedly, whatever its version.
func (w *writer) patch(ctx context.Context, name string) {
	for n := 1; ; n++ {
		once, cancel := w.brief(ctx)
		err := w.store.patch(once, name, fmt.Appendf(nil, `{"data":{"n":"%d","by":%q}}`, n, w.Identity))
		if apierrors.IsNotFound(err) {
			_, err = w.store.create(once, w.next(w.object(name)))
		}
		cancel()
		if !w.goesOn(ctx, err) {
			return
		}
	}
}

// fenced returns the context for a write, without its term if the replica is unfenced.
func (r *replica) fenced(ctx context.Context) context.Context {
	if r.Unfenced {
		return term.Without(ctx)
	}
	return ctx
}

// brief returns a context for a request and its repetition. It does not end with the term. Its
// timeout is short enough that no request is in flight when the Lease expires.
func (w *writer) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(w.fenced(ctx)), w.Lease/15)
}

// goesOn waits after a write and reports whether to continue. It stops for the fence and when the
// process is stopped, but not when a term of Setpoint is lost. Controller-runtime's context has no
// such cause: it ends with the process.
func (w *writer) goesOn(ctx context.Context, err error) bool {
	if errors.Is(err, term.ErrFenced) {
		return false
	}
	done := ctx.Done()
	if errors.Is(context.Cause(ctx), leaderelection.ErrLost) {
		done = nil
	}
	select {
	case <-time.After(pace):
		return true
	case <-done:
		return errors.Is(context.Cause(ctx), leaderelection.ErrLost)
	}
}

// theirStore is a store with controller-runtime's interface.
type theirStore struct {
	client    theirclient.Client
	reader    theirclient.Reader
	namespace string
}

func (s *theirStore) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	return object, s.reader.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, object)
}

func (s *theirStore) create(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return object, s.client.Create(ctx, object)
}

func (s *theirStore) update(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return object, s.client.Update(ctx, object)
}

func (s *theirStore) patch(ctx context.Context, name string, body []byte) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	return s.client.Patch(ctx, object, theirclient.RawPatch(types.MergePatchType, body))
}

// nativeStore is a store with Setpoint's interface.
type nativeStore struct {
	handle    *client.Handle[*corev1.ConfigMap]
	namespace string
}

func (s *nativeStore) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	return s.handle.GetLive(ctx, types.NamespacedName{Namespace: s.namespace, Name: name})
}

func (s *nativeStore) create(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return s.handle.Create(ctx, object)
}

func (s *nativeStore) update(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return s.handle.Update(ctx, object)
}

func (s *nativeStore) patch(ctx context.Context, name string, body []byte) error {
	_, err := s.handle.Patch(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, types.MergePatchType, body)
	return err
}
