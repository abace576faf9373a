// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// at returns the configuration of a further API server.
func at(host string, to http.RoundTripper) *rest.Config {
	cfg := config(to)
	cfg.Host = host
	return cfg
}

// TestLease_InAnotherCluster: only the Lease is there. The fence guards the writes to the manager's
// cluster, hooks see the requests for the Lease, and errors name its API server.
func TestLease_InAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, elsewhere := newAPI(), newAPI()
		put(api, "a")
		var mu sync.Mutex
		hosts := map[string]bool{}
		m, c := healthy(t, api, func(o *manager.Options) {
			elected(o)
			o.RequireTerm = true
			leaseIn(o).Config = at("http://leases.test", elsewhere)
			o.Hook = hook.On(func(a *hook.APIAnswer) {
				mu.Lock()
				defer mu.Unlock()
				hosts[a.Host] = true
			})
		})
		tokens := make(chan term.Token, 1)
		configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			tokens <- term.FromContext(ctx).Token()
			_, err := client.For[*corev1.Secret](m.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			return controller.Result{}, err
		})
		elsewhere.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") })
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		want(t, c, "http://x/readyz/leader-election-operator", 500,
			"[-]leader-election-operator failed: it could not be used yet: the API server of the Lease, http://leases.test: no right")
		elsewhere.Intercept(nil)
		testkit.Pass(time.Minute)
		testkit.NotEqual(t, holder(elsewhere), "")
		testkit.Equal(t, api.Stored(sim.Leases), 0)
		testkit.Equal(t, api.Stored(sim.Secrets), 1)
		token := <-tokens
		testkit.Equal(t, token.Holder, holder(elsewhere), "the term", token)
		stop()
		ok(t, result())
		testkit.Equal(t, hosts["leases.test"], true, fmt.Sprintf("the hooks saw %v", hosts))
		testkit.Equal(t, hosts["sim.test"], true, fmt.Sprintf("the hooks saw %v", hosts))
		for _, r := range elsewhere.Requests() {
			if r.Resource.Resource == "selfsubjectaccessreviews" { // of the manager
				continue
			}
			if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "test ") || !strings.HasSuffix(agent, "/leader-election") {
				t.Errorf("%s came from %q", r, agent)
			}
		}
	})
}

func TestLease_InAClusterThatIsMisconfigured(t *testing.T) {
	m := newManager(newAPI(), func(o *manager.Options) {
		elected(o)
		leaseIn(o).Config = &rest.Config{Host: "http://leases.test:port"}
	})
	m.AddLease(leaderelection.Options{Lease: "backups", Namespace: "default", Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}})
	err := m.Run(t.Context())
	for _, want := range []string{
		`the Lease "operator": leaderelection.Options.Config: `, `the Lease "backups": leaderelection.Options.Config: `,
	} {
		testkit.ErrorContains(t, err, want, "Run returned")
	}
}
