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

// writer writes all the time, in each term: some objects by updates with a version, others by patches without. When a term is lost
// it does not stop by itself, as badly written code does not: what stops it is the fence.
type writer struct {
	*orders
	*reporter

	writes *client.Handle[*corev1.ConfigMap]
}

// lead writes in one term, until it is stopped, or refused.
func (w *writer) lead(ctx context.Context) error {
	versions := make([]*corev1.ConfigMap, w.Objects)
	for i := range versions {
		// Each object with a version is written before anything else is: from then on a write of an older term is refused.
		var err error
		if versions[i], err = w.claim(ctx, nameOf(protects, i)); err != nil {
			return nil //nolint:nilerr // the term ended before it began
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

// claim writes an object with the version that it has, whichever that is, or makes it.
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

// next is what is written over a version of an object.
func (w *writer) next(object *corev1.ConfigMap) *corev1.ConfigMap {
	n, _ := strconv.Atoi(object.Data["n"]) // none is 0
	object.Data = map[string]string{"n": strconv.Itoa(n + 1), "by": w.Identity}
	return object
}

// protect updates an object again and again, each time with the version that the last update has made.
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
		case apierrors.IsConflict(err): // an update whose answer was lost, most likely
			once, cancel := w.brief(ctx)
			reading, _ := w.request(once, reads)
			if found, err := w.writes.GetLive(reading, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}); err == nil {
				object = found
			}
			cancel()
		}
	}
}

// patch patches an object again and again, whatever version it has.
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

// brief is a context for one request. It does not end with the term, but soon enough for the process to have nothing under way when
// the Lease is over, whatever the network does.
func (w *writer) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.Lease/15)
}

// goesOn says whether to write on after an error, or nil, and waits in between. It stops for the fence, and when the process is
// asked to stop, but not because the term is lost.
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
