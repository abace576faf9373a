// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// both adds a controller that watches the ConfigMaps of both clusters, and reads the ConfigMap and
// the Secrets in the cluster of its key. It notes when it reconciles which key.
func both(m *manager.Manager, west *manager.Cluster, d *diary, o controller.Options) *controller.Controller[handler.ClusterKey] {
	began := time.Now()
	handles := map[string]*cache.Handle[*corev1.ConfigMap]{"east": cache.For[*corev1.ConfigMap](m.Cache()), "west": cache.For[*corev1.ConfigMap](west.Cache())}
	secrets := map[string]*cache.Handle[*corev1.Secret]{"east": cache.For[*corev1.Secret](m.Cache()), "west": cache.For[*corev1.Secret](west.Cache())}
	c := controller.New("both", controller.Func[handler.ClusterKey](func(ctx context.Context, key handler.ClusterKey) (controller.Result, error) {
		before := time.Now()
		_, err := handles[key.Cluster].Get(ctx, key.NamespacedName)
		if err == nil {
			_, err = secrets[key.Cluster].List(ctx, cache.ListOptions{})
		}
		if errors.Is(err, cache.ErrNotSynced) { // soon retried
			return controller.Result{}, err
		}
		d.note("%s: %s:%s %v", before.Sub(began).Truncate(100*time.Millisecond), key.Cluster, key.Name, err)
		if waited := time.Since(before); waited > 0 {
			d.note("%s:%s occupied a worker for %s", key.Cluster, key.Name, waited)
		}
		return controller.Result{}, err
	}), o)
	for _, name := range []string{"east", "west"} {
		c.Watch(source.Kind(handles[name], handler.InCluster(name, handler.Self())))
		c.Reads(secrets[name])
	}
	m.Add(c)
	return c
}

// TestS9_AClusterThatDoesNotAnswer: the keys of the others do not wait for it, also under a Lease,
// and its own are reconciled when it answers.
func TestS9_AClusterThatDoesNotAnswer(t *testing.T) {
	for what, c := range map[string]struct {
		set      func(o *manager.Options)
		hangs    func(r *sim.Request) bool
		want     string
		recovers string
	}{
		"without a Lease": {nil, func(*sim.Request) bool { return true }, "0s: east:a <nil>", "20s"},
		"with a Lease":    {elected, func(*sim.Request) bool { return true }, "3s: east:a <nil>", "20s"},
		"one kind of it":  {nil, func(r *sim.Request) bool { return r.Resource.Resource == "secrets" }, "0s: east:a <nil>", "20s"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, west := newAPI(), newAPI()
				put(api, "a")
				put(west, "b")
				answers := make(chan struct{})
				west.Intercept(func(r *sim.Request) (*http.Response, error) {
					if c.hangs(r) {
						<-answers
					}
					return nil, nil
				})
				m := newManager(api, c.set)
				var d diary
				both(m, m.AddCluster("west", at("http://west.test", west)), &d, controller.Options{Workers: 1})
				stop, result := start(t, m)
				testkit.Pass(20 * time.Second)
				d.want(t, c.want)
				close(answers)
				testkit.Pass(time.Second)
				d.want(t, c.want, c.recovers+": west:b <nil>")
				ok(t, m.Idle(t.Context()))
				stop()
				ok(t, result())
			})
		})
	}
}

// TestM3_AClusterThatDoesNotAnswer: the replica is ready after a few seconds, its check names the
// cluster, and other controllers are not concerned. Keys that read it get an error soon.
func TestM3_AClusterThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, west := newAPI(), newAPI()
		put(api, "a")
		west.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		m, c := healthy(t, api, elected)
		began := time.Now()
		newCopier(m, m.AddCluster("west", at("http://west.test", west)))
		var d diary
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			d.note("%s", time.Since(began).Truncate(time.Second))
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		testkit.Pass(5 * time.Second)
		d.want(t, "3s")
		const trouble = "Secret.v1 (cluster west): failing: the API server has not answered for 3s"
		want(t, c, "http://x/readyz?verbose", 200, "[+]leader-election-operator ok", "[+]controller-copier ok: "+trouble, "[+]controller-website ok",
			"[+]informers ok: "+trouble, "[+]shutdown ok", "readyz check passed")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.ErrorContains(t, m.Idle(ctx), "cluster west")
		west.Intercept(nil)
		testkit.Pass(3 * time.Minute) // the requests without an answer are repeated
		ok(t, m.Idle(t.Context()))
		testkit.Equal(t, west.Stored(sim.Secrets), 1, "it has not recovered")
		stop()
		ok(t, result())
	})
}
