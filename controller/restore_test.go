// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// createThen creates the Secret s of the key, and then calls f.
func createThen(f func(*rig)) step {
	return func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("s")})
		f(r)
		return controller.Result{RequeueAfter: 100 * time.Millisecond}, err
	}
}

// TestC6_AWriteThatARestoreUndid: a key waits for its own write, and the API server is restored to
// before it. The key does not wait for a version that never comes: it is reconciled when its caches
// are right, and sees that the object is missing.
func TestC6_AWriteThatARestoreUndid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backup *sim.Backup
		var missing error
		look := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			_, missing = r.secrets.Get(ctx, types.NamespacedName{Namespace: "default", Name: "s"})
			return controller.Result{}, nil
		}
		undo := func(r *rig) { // the watch never shows the write
			r.api.Lag(time.Hour)
			synctest.Wait()
			backup.Restore()
		}
		r := newRig(t, controller.Options{ReadYourWrites: time.Hour}, workqueue.Options[types.NamespacedName]{}, nil, createThen(undo), look)
		for range 20 { // its caches are past the version of the next writes
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("busy"), StringData: map[string]string{"at": time.Now().String()}})
			time.Sleep(time.Second)
		}
		backup = r.api.Backup()
		r.start()
		at := r.after(time.Minute)
		// The relist may make the key due again, at the same moment, after the Reconcile has begun.
		again := len(at) == 3 && at[2] == at[1]
		if len(at) != 2 && !again || !apierrors.IsNotFound(missing) {
			t.Errorf("reconciled at %v; the Secret: %v", at, missing)
		}
	})
}

// TestC6_AWriteAfterARestore: only the version of a key's own write shows the restore so soon after
// it. The next Reconcile sees the write, and what the restore has changed.
func TestC6_AWriteAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backup *sim.Backup
		restore := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			backup.Restore()
			return controller.Result{RequeueAfter: time.Second}, nil
		}
		var own, gone error
		look := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			_, own = r.secrets.Get(ctx, types.NamespacedName{Namespace: "default", Name: "s"})
			_, gone = r.secrets.Get(ctx, types.NamespacedName{Namespace: "default", Name: "later"})
			return controller.Result{}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, restore, createThen(func(*rig) {}), look)
		time.Sleep(5 * time.Minute)
		backup = r.api.Backup()
		for n := range 30 {
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("later"), StringData: map[string]string{"n": string(rune('a' + n))}})
		}
		time.Sleep(5 * time.Minute)
		r.start()
		at := r.after(2 * time.Minute)
		testkit.Len(t, at, 3)
		testkit.Equal(t, own, nil)
		testkit.ErrorSatisfies(t, gone, apierrors.IsNotFound)
	})
}

// TestC7_AFailingKeyAndARestore: a key is in a long backoff. The relist of a restored API server
// makes it due, also if an object's version equals the version of an earlier write of the key.
func TestC7_AFailingKeyAndARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, errors.New("no")
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, slices.Repeat([]step{fail}, 100)...)
		time.Sleep(5 * time.Minute)
		backup := r.api.Backup()
		for n := range 30 {
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("later"), StringData: map[string]string{"n": string(rune('a' + n))}})
		}
		time.Sleep(time.Minute)
		r.start()
		r.after(10 * time.Minute)
		r.mu.Lock()
		before := len(r.at)
		r.mu.Unlock()
		backup.Restore()
		at := r.after(10*time.Minute + 30*time.Second)
		if len(at) <= before {
			t.Errorf("reconciled at %v, not after the restore", at)
		}
	})
}
