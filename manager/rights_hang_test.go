// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestRights_OfTwoNamespacesStayThere: an operator of two namespaces gets Roles there, no
// ClusterRole.
func TestRights_OfTwoNamespacesStayThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newPoliced(all()), func(o *manager.Options) { o.Cache.Namespaces = cache.NewSet("shop", "bank") })
		cache.For[*corev1.Secret](m.Cache())
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		r := m.Rights(t.Context())
		testkit.NotContains(t, r.YAML(), "ClusterRole", fmt.Sprintf("needed %v used %v", r.Needed, r.Used))
		stop()
		ok(t, result())
	})
}

// TestRights_ReturnAtTheEndOfTheirContext: also if requests hang, as in an exec plugin. Then
// further calls send none.
func TestRights_ReturnAtTheEndOfTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, hangs := newPoliced(), make(chan struct{})
		api.silent = func(*http.Request) (*http.Response, error) {
			<-hangs
			return nil, errors.New("hung")
		}
		m := newManager(api, nil)
		cache.For[*corev1.Secret](m.Cache())
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		before := api.reviewed()
		for range 5 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			r := m.Rights(ctx)
			cancel()
			if took := time.Since(began); took > 3*time.Second || len(r.Used) != 1 || len(r.Missing) != 1 || !strings.Contains(r.Error, "an earlier review") {
				t.Errorf("after %s used is %v, missing %v, error %q", took, r.Used, r.Missing, r.Error)
			}
		}
		testkit.Equal(t, api.reviewed(), before, fmt.Sprintf("reviews, %d before", before))
		api.mu.Lock()
		api.silent = nil
		api.mu.Unlock()
		close(hangs)
		synctest.Wait()
		if r := m.Rights(t.Context()); r.Error != "" || len(r.Missing) != 1 || len(r.Missing[0].Verbs) != 2 {
			t.Errorf("then missing is %v, error %q", r.Missing, r.Error)
		}
		stop()
		ok(t, result())
	})
}

// TestRights_OfARefusedMergePatch: a merge patch never creates.
func TestRights_OfARefusedMergePatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		m := newManager(api, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		_, _ = client.For[*corev1.Secret](m.Client()).Patch(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, types.MergePatchType, []byte(`{}`))
		r := m.Rights(t.Context())
		testkit.NotContains(t, r.YAML(), "create", r.Missing)
		stop()
		ok(t, result())
	})
}

// TestPreflight_OfEventsOfClusterScopedObjects: the role of the log is enough for them.
func TestPreflight_OfEventsOfClusterScopedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPoliced()
		var out testkit.Buffer
		m := newManager(api, func(o *manager.Options) {
			o.Cache.Namespaces = cache.NewSet("shop")
			o.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		cache.ForScope[*unstructured.Unstructured](m.Cache(), cache.Scope{Kind: schema.GroupVersionKind{Group: zones.Group, Version: "v1", Kind: zones.Kind}})
		rec := events.For(m, events.Options{})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		api.grant(t, rightsLogged(t, &out)[0].Role)
		z := &unstructured.Unstructured{}
		z.SetAPIVersion("example.com/v1")
		z.SetKind("Zone")
		z.SetName("z")
		rec.Eventf(t.Context(), z, events.Normal, "A", "", "a")
		testkit.Pass(time.Minute)
		testkit.Len(t, m.Rights(t.Context()).Missing, 0, "with the role of the log, missing")
		stop()
		ok(t, result())
	})
}

// TestPreflight_LineHasALimit: the line names the command that prints the roles.
func TestPreflight_LineHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for n := range 1000 {
			names = append(names, fmt.Sprintf("team-%d", n))
		}
		var out testkit.Buffer
		m := newManager(newPoliced(), func(o *manager.Options) {
			o.Cache.Namespaces = cache.NewSet(names...)
			o.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		cache.For[*corev1.Secret](m.Cache())
		cache.For[*corev1.ConfigMap](m.Cache())
		stop, result := start(t, m)
		testkit.Pass(30 * time.Second)
		stop()
		_ = result()
		longest := 0
		for l := range strings.Lines(out.String()) {
			longest = max(longest, len(l))
		}
		testkit.AtMost(t, longest, 10<<10)
		testkit.Contains(t, out.String(), "kubectl setpoint rbac prints roles")
	})
}

// TestRights_OfARefusalByAdmission: a quota or a webhook refuses with 403, too.
func TestRights_OfARefusalByAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := all()
		rules.Verbs = []string{"get", "list", "watch", "patch"}
		api := newPoliced(rules)
		put(api.Server, "a")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "patch" {
				return r.FailWith(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: "admission webhook denied the request"})
			}
			return nil, nil
		})
		m := newManager(api, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		_, err := client.For[*corev1.ConfigMap](m.Client()).Patch(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, types.MergePatchType, []byte(`{"data":{"a":"b"}}`))
		testkit.NotEqual(t, err, nil, "the webhook allows the patch")
		testkit.Len(t, m.Rights(t.Context()).Missing, 0)
		stop()
		ok(t, result())
	})
}

// TestPreflight_OfAGroupThatHangs: what is missing elsewhere is logged.
func TestPreflight_OfAGroupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		m := newManager(hungGroup{newPoliced()}, func(o *manager.Options) {
			elected(o)
			o.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		cache.For[*corev1.Secret](m.Cache())
		cache.ForScope[*unstructured.Unstructured](m.Cache(), cache.Scope{Kind: schema.GroupVersionKind{Group: zones.Group, Version: "v1", Kind: zones.Kind}})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		logged := rightsLogged(t, &out)
		if len(logged) != 2 || len(logged[1].Missing) < 3 {
			t.Errorf("the log has %+v, want the missing rights of the Lease and of Secrets", logged)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r := m.Rights(ctx); len(r.Missing) != 3 || !strings.Contains(r.Error, "the resource of example.com/v1, Kind=Zone is unknown") {
			t.Errorf("missing is %v, error %s", r.Missing, r.Error)
		}
		stop()
		ok(t, result())
	})
}

// TestPreflight_OfAReviewThatHangs: what the other reviews deny is logged.
func TestPreflight_OfAReviewThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, hangs, first := newPoliced(), make(chan struct{}), true
		var out testkit.Buffer
		var mu sync.Mutex
		m := newManager(roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews") {
				mu.Lock()
				hang := first
				first = false
				mu.Unlock()
				if hang {
					<-hangs
					return nil, errors.New("hung")
				}
			}
			return api.RoundTrip(r)
		}), func(o *manager.Options) {
			elected(o)
			o.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		cache.For[*corev1.Secret](m.Cache())
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		logged := rightsLogged(t, &out)
		if len(logged) != 2 || len(logged[1].Missing) == 0 || !strings.Contains(logged[0].Err, "rights without a review are 1, such as: ") {
			t.Errorf("the log has %+v, want missing rights of the other reviews", logged)
		}
		close(hangs)
		stop()
		ok(t, result())
	})
}

type hungGroup struct{ *policed }

func (h hungGroup) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/apis/example.com/v1" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.policed.RoundTrip(r)
}
