// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

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

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// writer writes continuously in each term: it updates some objects with a version and patches
// others without. Like badly written code, it does not stop by itself when a term is lost; the
// fence stops it.
type writer struct {
	*orders
	*reporter

	writes *client.Handle[*corev1.ConfigMap]
}

// lead writes in one term until it is stopped or refused.
func (w *writer) lead(ctx context.Context) error {
	versions := make([]*corev1.ConfigMap, w.Objects)
	for i := range versions {
		// Write each versioned object first: writes of an older term are refused from then on.
		var err error
		if versions[i], err = w.claim(ctx, nameOf(protects, i)); err != nil {
			return nil //nolint:nilerr // the term ended before its first write
		}
	}
	_, term := w.request(ctx, reads)
	w.tell(report{What: leads, Term: term})
	var writing sync.WaitGroup
	for i := range w.Objects {
		writing.Go(func() { w.protect(ctx, versions[i]) })
		writing.Go(func() { w.patch(ctx, nameOf(patches, i)) })
	}
	writing.Wait()
	return nil
}

func nameOf(sort string, i int) string { return sort + "-" + strconv.Itoa(i) }

// claim writes an object at its current version, or creates it.
func (w *writer) claim(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	for {
		once, cancel := w.brief(ctx)
		reading, _ := w.request(once, reads)
		object, err := w.writes.GetLive(reading, types.NamespacedName{Namespace: w.Namespace, Name: name})
		writing, _ := w.request(once, protects)
		switch {
		case apierrors.IsNotFound(err):
			object, err = w.writes.Create(writing, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}})
		case err == nil:
			object, err = w.writes.Update(writing, w.next(object))
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

// next prepares the next version of an object.
func (w *writer) next(object *corev1.ConfigMap) *corev1.ConfigMap {
	n, _ := strconv.Atoi(object.Data["n"]) // 0 if absent
	object.Data = map[string]string{"n": strconv.Itoa(n + 1), "by": w.Identity}
	return object
}

// protect updates an object repeatedly, each time with the version of the last update.
func (w *writer) protect(ctx context.Context, object *corev1.ConfigMap) {
	for {
		once, cancel := w.brief(ctx)
		writing, _ := w.request(once, protects)
		written, err := w.writes.Update(writing, w.next(object.DeepCopy()))
		cancel()
		if !w.goesOn(ctx, err) {
			return
		}
		switch {
		case err == nil:
			object = written
		case apierrors.IsConflict(err): // most likely the answer to an update was lost
			once, cancel := w.brief(ctx)
			reading, _ := w.request(once, reads)
			if found, err := w.writes.GetLive(reading, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}); err == nil {
				object = found
			}
			cancel()
		}
	}
}

// patch patches an object repeatedly, whatever its version.
func (w *writer) patch(ctx context.Context, name string) {
	key := types.NamespacedName{Namespace: w.Namespace, Name: name}
	for n := 1; ; n++ {
		once, cancel := w.brief(ctx)
		writing, _ := w.request(once, patches)
		_, err := w.writes.Patch(writing, key, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d","by":%q}}`, n, w.Identity))
		if apierrors.IsNotFound(err) {
			_, err = w.writes.Create(writing, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}})
		}
		cancel()
		if !w.goesOn(ctx, err) {
			return
		}
	}
}

// brief returns a context for one request. It does not end with the term. Its timeout is short
// enough that no request is in flight when the Lease expires.
func (w *writer) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.Lease/15)
}

// goesOn waits after a write and reports whether to continue. It stops for the fence and when the
// process is stopped, but not when the term is lost.
func (w *writer) goesOn(ctx context.Context, err error) bool {
	if errors.Is(err, term.ErrFenced) {
		w.tell(report{What: refused})
		return false
	}
	done := ctx.Done()
	if errors.Is(context.Cause(ctx), leaderelection.ErrLost) {
		done = nil
	}
	select {
	case <-time.After(w.Pace):
		return true
	case <-done:
		return errors.Is(context.Cause(ctx), leaderelection.ErrLost)
	}
}
