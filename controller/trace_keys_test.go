// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// TestValueOf_UnknownKind: Secrets of informers that do not know their kind.
func TestValueOf_UnknownKind(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": "aHVudGVyMg=="}}}
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
	p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"password":"aHVudGVyMg=="}}`}
	type own struct{ *corev1.Secret }
	for what, o := range map[string]handler.Object{"unstructured": u, "metadata": p, "embedded": own{&corev1.Secret{Data: map[string][]byte{"password": []byte("hunter2")}}}} {
		testkit.NotEqual(t, controller.ValueOf("", "Unstructured", o).Hidden, "", what)
	}
}

// TestAct_WhilePaused: no answer calls a key of a paused controller due now.
func TestAct_WhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newController(func(context.Context, string) (controller.Result, error) {
			n++
			return controller.Result{}, nil
		}, controller.Options{Logger: silent})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		synctest.Wait()
		c.Pause()
		got := act(t, c, "requeue", "a")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n == 1 && got == "a is due now" {
			t.Errorf("%q, but the controller is paused: %d Reconciles", got, n)
		}
		act(t, c, "pause", "a")
		t.Log(act(t, c, "resume", "a"))
		ok(t, stop())
	})
}

// TestTrace_OnSeveralReplicas: an object with keys in several slots is traced where one of them is
// reconciled.
func TestTrace_OnSeveralReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.control.Watch(source.Kind(r.secrets, handler.Map(func(context.Context, *corev1.Secret) ([]types.NamespacedName, error) {
			return []types.NamespacedName{keyOf("z"), keyOf("b1")}, nil
		})))
		r.start()
		all.Acquire(ownership('b', nil))
		r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("two")})
		r.seen(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		go func() {
			time.Sleep(time.Second)
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two", Labels: map[string]string{"a": "b"}}})
		}()
		watches, err := r.control.Trace(ctx, why.Object{Kind: "Secret", Namespace: "default", Name: "two"}, func(controller.Traced) { n++ })
		if err != nil || n != 1 {
			t.Errorf("this replica reconciles b1; watches %t, %d traced, err %v", watches, n, err)
		}
		r.seen(time.Second)
	})
}
