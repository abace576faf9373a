// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// TestHistory_Chain: an answer names the writes that led to the last Reconcile, across controllers,
// and what that one has read.
func TestHistory_Chain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if key.Name != "web" {
				return controller.Result{}, nil
			}
			child := corev1ac.Secret("child", "default").WithData(map[string][]byte{"a": []byte("b")})
			_, err := client.For[*corev1.Secret](w.mgr.Client()).Apply(ctx, child)
			return controller.Result{}, err
		}
		w.start()
		secrets := cache.For[*corev1.Secret](w.mgr.Cache())
		c := controller.New("second", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if _, err := secrets.Get(ctx, key); err != nil {
				return controller.Result{}, err
			}
			testkit.ErrorSatisfies(t, testkit.Err(w.maps.Get(ctx, types.NamespacedName{Namespace: "default", Name: "absent"})), apierrors.IsNotFound)
			_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Apply(ctx, corev1ac.ConfigMap("third", "default"))
			return controller.Result{}, err
		}), controller.Options{})
		c.Watch(source.Kind(secrets, handler.Self()))
		c.Reads(w.maps)
		w.mgr.Add(c)
		w.put(site())
		text := why.For(t.Context(), child, w.mgr).String()
		first, _, _ := strings.Cut(text[strings.Index(text, "second"):], "\n")
		for _, part := range []string{"because of create of default/child at version ", "read caches 2 times and did not find ConfigMap default/absent, sent 1 request, wrote patch configmaps default/third"} {
			testkit.Contains(t, first, part, fmt.Sprintf("the first line lacks %q", part))
		}
		third := why.For(t.Context(), why.Object{Kind: "configmap", Namespace: "default", Name: "third"}, w.mgr).String()
		var chain []string
		for line := range strings.Lines(third) {
			if cause, is := strings.CutPrefix(line, "  caused by a write of the Reconcile of "); is {
				by, _, _ := strings.Cut(cause, " until ")
				_, because, _ := strings.Cut(cause, ", because of ")
				because, _, _ = strings.Cut(because, " at version ")
				chain = append(chain, by+" < "+because)
			}
		}
		if got := strings.Join(chain, "; "); got != "second default/child < create of default/child; site default/web < create of default/web" {
			t.Errorf("the chain is %q:\n%s", got, third)
		}
		if web := why.For(t.Context(), web, w.mgr).String(); !strings.Contains(web, "sent 1 request, wrote patch secrets default/child (stored at version ") || strings.Contains(web, "caused by") {
			t.Errorf("of the first object: %s", web)
		}
	})
}

// TestHistory_Noop: a write that changed nothing has not caused the event before it.
func TestHistory_Noop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reconcile = func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Update(ctx, site())
			return controller.Result{}, err
		}
		w.start()
		w.put(site())
		text := why.For(t.Context(), web, w.mgr).String()
		testkit.Contains(t, text, "wrote update configmaps default/web (stored at version 2); because of create of default/web at version 2")
		testkit.NotContains(t, text, "caused by")
		w.reconcile = func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, w.apply(ctx, "test", "mine")
		}
		m := site()
		m.Data["value"] = "other"
		w.put(m)
		text = why.For(t.Context(), web, w.mgr).String()
		if n := strings.Count(text, "perhaps caused by a write of the Reconcile of site default/web until"); n != 1 {
			t.Errorf("%d lines about the apply, want 1, because only the second one was a no-op:\n%s", n, text)
		}
	})
}
