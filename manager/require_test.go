// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// forbid refuses all requests for ConfigMaps in the namespaces that are listed. "" is the whole
// cluster.
func forbid(api *sim.Server, namespaces ...string) {
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource == "configmaps" && slices.Contains(namespaces, r.Namespace) {
			return r.Fail(http.StatusForbidden, "no Role in "+r.Namespace)
		}
		return nil, nil
	})
}

// TestL8_RequiredKindsOfSeveralNamespaces: one tenant that cannot be read delays only its own keys.
// If none can be read, the replica is not ready and does not lead.
func TestL8_RequiredKindsOfSeveralNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		scope     []string
		forbidden []string
		leads     bool
	}{
		"all readable":       {[]string{"a", "b", "c"}, nil, true},
		"one forbidden":      {[]string{"a", "b", "c"}, []string{"b"}, true},
		"two forbidden":      {[]string{"a", "b", "c"}, []string{"a", "b"}, true},
		"all forbidden":      {[]string{"a", "b", "c"}, []string{"a", "b", "c"}, false},
		"one, forbidden":     {[]string{"a"}, []string{"a"}, false},
		"cluster, forbidden": {nil, []string{""}, false},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, packed %v", name, packed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := newAPI()
					for _, ns := range []string{"a", "b", "c"} {
						api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}})
					}
					forbid(api, test.forbidden...)
					var log bytes.Buffer
					m := newManager(api, func(o *manager.Options) {
						elected(o)
						o.Logger = slog.New(slog.NewTextHandler(&log, nil))
						if test.scope != nil {
							o.Cache.Namespaces = cache.NewSet(test.scope...)
						}
						if o.Cache.Storage = cache.Decoded; packed {
							o.Cache.Storage = cache.Packed
						}
					})
					seen := map[string]bool{}
					c := controller.New("website", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
						seen[key.Namespace] = true
						return controller.Result{}, nil
					}), controller.Options{RequireKinds: true})
					c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
					m.Add(c)
					stop, result := start(t, m)
					testkit.Pass(3 * time.Minute)
					testkit.Equal(t, isReady(m), test.leads)
					testkit.Equal(t, holder(api) != "", test.leads)
					for _, ns := range test.scope {
						readable := !slices.Contains(test.forbidden, ns)
						testkit.Equal(t, seen[ns], test.leads && readable, fmt.Sprintf("keys of the namespaces %v are reconciled", seen))
						if named := strings.Contains(log.String(), "namespace "+ns+")") && strings.Contains(log.String(), "no Role in "+ns); test.leads && named == readable {
							t.Errorf("the log names %s: %v:\n%s", ns, named, log.String())
						}
					}
					api.Intercept(nil)
					testkit.Pass(10 * time.Second)
					testkit.Equal(t, isReady(m), true, "at the end")
					testkit.NotEqual(t, holder(api), "", "at the end")
					for _, ns := range test.scope {
						testkit.Equal(t, seen[ns], true, fmt.Sprintf("at the end, the key of the namespace %s is not reconciled", ns))
					}
					stop()
					ok(t, result())
				})
			})
		}
	}
}

// TestL8_ANamespaceThatIsAdded: while a replica waits for its kinds, and later.
func TestL8_ANamespaceThatIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		forbid(api, "a", "c")
		namespaces := cache.NewSet("a")
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Cache.Namespaces = namespaces
		})
		c := controller.New("website", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{RequireKinds: true})
		maps := cache.For[*corev1.ConfigMap](m.Cache())
		c.Watch(source.Kind(maps, handler.Self()))
		c.Reads(maps)
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, isReady(m), false)
		testkit.Equal(t, holder(api), "")
		namespaces.Add("b")
		testkit.Pass(5 * time.Second)
		testkit.Equal(t, isReady(m), true, "with a readable namespace")
		testkit.NotEqual(t, holder(api), "", "with a readable namespace")
		namespaces.Add("c")
		testkit.Pass(time.Minute)
		if err := maps.Stale(); err == nil || !strings.Contains(err.Error(), "namespace a)") || !strings.Contains(err.Error(), "namespace c)") {
			t.Errorf("Stale is %v", err)
		}
		stop()
		ok(t, result())
	})
}

// TestL8_OptionalKinds: required and optional kinds in one controller.
func TestL8_OptionalKinds(t *testing.T) {
	for name, watched := range map[string]bool{"watched": true, "read": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				api.Withdraw(sim.Secrets, sim.ConfigMaps)
				m := newManager(api, elected)
				c := controller.New("website", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
					return controller.Result{}, nil
				}), controller.Options{RequireKinds: true})
				secrets := cache.For[*corev1.Secret](m.Cache())
				c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
				if watched {
					c.Watch(source.Kind(secrets, handler.Self()))
				} else {
					c.Reads(secrets)
				}
				c.Optional(secrets)
				m.Add(c)
				stop, result := start(t, m)
				testkit.Pass(3 * time.Minute)
				testkit.Equal(t, isReady(m), false, "without the required kind")
				testkit.Equal(t, holder(api), "", "without the required kind")
				api.Serve(sim.ConfigMaps)
				testkit.Pass(5 * time.Second)
				testkit.Equal(t, isReady(m), true, "without the optional kind")
				testkit.NotEqual(t, holder(api), "", "without the optional kind")
				stop()
				ok(t, result())
			})
		})
	}
	c := controller.New("website", controller.Func[types.NamespacedName](nil), controller.Options{})
	c.Optional(cache.For[*corev1.Secret](newManager(newAPI(), nil).Cache()))
	testkit.ErrorContains(t, c.Validate(), "neither watches nor reads", "Validate returns")
}
