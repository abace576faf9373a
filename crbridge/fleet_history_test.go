// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// record watches the Lease and the objects until ctx ends. A watch has each state of each object,
// also after it was interrupted.
func (f *fleet) record(ctx context.Context) error {
	objects, err := f.client.CoreV1().ConfigMaps(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, w := range []watchFunc{
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.client.CoreV1().ConfigMaps(f.namespace).Watch(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.client.CoordinationV1().Leases(f.namespace).Watch(ctx, o)
		},
	} {
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, objects.ResourceVersion, &toolscache.ListWatch{WatchFuncWithContext: toolscache.WatchFuncWithContext(w)})
		if err != nil {
			return err
		}
		f.recording.Go(func() {
			defer watcher.Stop()
			for e := range watcher.ResultChan() {
				f.change(func() { f.storedLocked(e) })
			}
		})
	}
	return nil
}

type watchFunc func(context.Context, metav1.ListOptions) (watch.Interface, error)

func (f *fleet) storedLocked(e watch.Event) {
	if e.Type == watch.Error {
		f.failLocked(fmt.Errorf("the history has a gap: %w", apierrors.FromObject(e.Object)))
		return
	}
	if e.Type != watch.Added && e.Type != watch.Modified {
		return // kube-root-ca.crt and the like are not ours
	}
	s, ok := entryOf(e.Object)
	if !ok {
		return
	}
	s.heard = time.Now()
	f.history, f.version = append(f.history, s), max(f.version, s.version)
	if s.object == "" {
		f.holder = s.by
	}
}

// entryOf returns the entry for an object of the fleet.
func entryOf(o runtime.Object) (e entry, ok bool) {
	switch o := o.(type) {
	case *coordinationv1.Lease:
		if o.Spec.HolderIdentity != nil {
			e.by = *o.Spec.HolderIdentity
		}
		if o.Spec.RenewTime != nil {
			e.renew = o.Spec.RenewTime.Time
		}
		e.version, ok = versionOf(o)
		return e, ok && o.Name == leaseName
	case *corev1.ConfigMap:
		e.object, e.by = o.Name, o.Data["by"]
		e.n, _ = strconv.Atoi(o.Data["n"])
		e.version, ok = versionOf(o)
		return e, ok && e.sort() != o.Name
	}
	return e, false
}

func versionOf(o metav1.Object) (uint64, bool) {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return version, err == nil
}

// complete waits until the history has all that was written before the call.
func (f *fleet) complete(ctx context.Context) error {
	last, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(ctx, taskObject("task-end"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	lease, err := f.client.CoordinationV1().Leases(f.namespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "example.com/end", "true")
	if lease, err = f.client.CoordinationV1().Leases(f.namespace).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return err
	}
	missing := map[string]bool{last.ResourceVersion: true, lease.ResourceVersion: true}
	seen := 0
	return f.wait(ctx, "the end of the history", func() bool {
		for ; seen < len(f.history); seen++ {
			delete(missing, strconv.FormatUint(f.history[seen].version, 10))
		}
		return len(missing) == 0
	})
}
