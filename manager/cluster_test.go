// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/source"
)

// copier copies the ConfigMaps of the manager's cluster to another one, as Secrets.
type copier struct {
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
	to      *client.Client
	diary   *diary
}

func (r *copier) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if _, err := r.maps.Get(ctx, key); err != nil {
		return controller.Result{}, ignoreNotFound(err)
	}
	_, err := r.secrets.Get(ctx, key)
	r.diary.note("%s: copied %v", key.Name, err == nil)
	if !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	_, err = client.For[*corev1.Secret](r.to).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	return controller.Result{RequeueAfter: time.Millisecond}, err
}

// newCopier adds a copier to the cluster.
func newCopier(m *manager.Manager, to *manager.Cluster) (*copier, *controller.Controller[types.NamespacedName]) {
	r := &copier{cache.For[*corev1.ConfigMap](m.Cache()), cache.For[*corev1.Secret](to.Cache()), to.Client(), &diary{}}
	c := controller.New("copier", r, controller.Options{})
	c.Watch(source.Kind(r.maps, handler.Self()))
	c.Reads(r.secrets, cache.For[*corev1.Secret](m.Cache())) // the latter never has the copies
	m.Add(c)
	return r, c
}

// TestM7_IdleOverSeveralClusters: a key waits for its write in the cluster that it wrote to. The
// write has the term of the manager's Lease, and Idle waits for all that.
func TestM7_IdleOverSeveralClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, west := newAPI(), newAPI()
		west.Lag(time.Second)
		for range 20 { // its versions are ahead
			put(west, "b")
		}
		put(api, "a")
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.RequireTerm = true
		})
		r, _ := newCopier(m, m.AddCluster("west", at("http://west.test", west)))
		stop, result := start(t, m)
		began := time.Now()
		ok(t, m.Idle(t.Context()))
		testkit.AtMost(t, time.Since(began), 10*time.Second)
		r.diary.want(t, "a: copied false", "a: copied true")
		testkit.Equal(t, west.Stored(sim.Secrets), 1)
		testkit.Equal(t, west.Stored(sim.Leases), 0)
		testkit.Equal(t, api.Stored(sim.Secrets), 0)
		err := client.For[*corev1.Secret](r.to).Delete(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"})
		testkit.ErrorContains(t, err, "term of leadership", "a write without a term")
		stop()
		ok(t, result())
	})
}

// TestM1_RunJoinsAllClusters: their informers and connections, also of a cluster that does not
// answer.
func TestM1_RunJoinsAllClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, dead := newAPI(), newAPI()
		dead.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		m := newManager(newAPI(), nil)
		configs := []*rest.Config{at("http://west.test", west), at("http://dead.test", dead)}
		newCopier(m, m.AddCluster("west", configs[0]))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		cache.For[*corev1.Secret](m.AddCluster("dead", configs[1]).Cache()) // while it runs
		testkit.Pass(time.Second)
		testkit.NotEqual(t, west.Watches(), 0, "nothing is watched in west")
		began := time.Now()
		stop()
		ok(t, result())
		testkit.AtMost(t, time.Since(began), time.Second)
		testkit.Equal(t, west.Watches(), 0)
		for _, cfg := range configs {
			if l, isLine := cfg.Transport.(*line); !isLine || l.closed.Load() == 0 {
				t.Errorf("the idle connections to %s are not closed", cfg.Host)
			}
		}
	})
}

// TestM3_AClusterThatCannotBeReached: the others continue, the replica becomes ready, and the check
// and the log name the cluster. It recovers.
func TestM3_AClusterThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, west := newAPI(), newAPI()
		put(api, "a")
		west.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		var out testkit.Buffer
		m, c := healthy(t, api, func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		newCopier(m, m.AddCluster("west", at("http://west.test", west)))
		var d diary
		configMaps(m, "website", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			d.note("%s", key.Name)
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		d.want(t, "a")
		want(t, c, "http://x/readyz/informers", 200, "ok")
		const trouble = `Secret.v1 (cluster west): failing: asking the API server at http://west.test for v1: Get "http://west.test/api/v1": dial tcp: connection refused`
		want(t, c, "http://x/readyz?verbose", 200, "[+]controller-copier ok: "+trouble, "[+]controller-website ok",
			"[+]informers ok: "+trouble, "[+]shutdown ok", "readyz check passed")
		testkit.Contains(t, out.String(), `msg="an informer is failing" kind=Secret.v1 scope="cluster west"`, "the log does not name the cluster")
		west.Intercept(nil)
		testkit.Pass(time.Minute)
		ok(t, m.Idle(t.Context()))
		testkit.Equal(t, west.Stored(sim.Secrets), 1, "it has not recovered")
		testkit.Equal(t, isReady(m), true, "it has not recovered")
		stop()
		ok(t, result())
	})
}

// TestM6_RemoveCluster: it names the controllers that use the cluster. Later, handles return an
// error, the informers are gone, and the name is free.
func TestM6_RemoveCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, west := newAPI(), newAPI()
		put(api, "a")
		m := newManager(api, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		cluster := m.AddCluster("west", at("http://west.test", west))
		r, c := newCopier(m, cluster)
		ok(t, m.Idle(t.Context()))
		want := func(err error, text string) {
			t.Helper()
			testkit.ErrorContains(t, err, text)
		}
		want(m.RemoveCluster(t.Context(), cluster), `the cluster "west" is in use by the controller "copier"; remove that first`)
		ok(t, m.Remove(t.Context(), c))
		ok(t, m.RemoveCluster(t.Context(), cluster))
		testkit.Equal(t, west.Watches(), 0, "watches are left")
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		_, err := r.secrets.Get(t.Context(), key)
		want(err, `Secret.v1 (cluster west): the cluster "west" was removed`)
		want(r.secrets.WaitForSync(t.Context()), `the cluster "west" was removed`)
		_, err = cache.For[*corev1.ConfigMap](cluster.Cache()).Get(t.Context(), key)
		want(err, `ConfigMap.v1 (cluster west): the cluster "west" was removed`)
		want(m.RemoveCluster(t.Context(), cluster), `no cluster "west" was added`)
		want(m.RemoveCluster(t.Context(), nil), "the cluster is nil")

		again := m.AddCluster("west", at("http://west.test", west))
		r, _ = newCopier(m, again)
		ok(t, m.Idle(t.Context()))
		r.diary.want(t, "a: copied true")
		stop()
		ok(t, result())
	})
}

// TestM6_ClusterKeys: one controller reconciles all clusters, which come and go. Annotations pause
// the key of their cluster only.
func TestM6_ClusterKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		m := newManager(newAPI(), nil)
		c := controller.New("website", controller.Func[handler.ClusterKey](func(_ context.Context, key handler.ClusterKey) (controller.Result, error) {
			d.note("%s", key)
			return controller.Result{}, nil
		}), controller.Options{})
		m.Add(c)
		stop, result := start(t, m)
		sources := map[string]source.Source[handler.ClusterKey]{}
		apis, clusters := map[string]*sim.Server{}, map[string]*manager.Cluster{}
		for _, name := range []string{"east", "west"} {
			apis[name] = newAPI()
			clusters[name] = m.AddCluster(name, at("http://"+name+".test", apis[name]))
			sources[name] = source.Kind(cache.For[*corev1.ConfigMap](clusters[name].Cache()), handler.InCluster(name, handler.Self()))
			c.Watch(sources[name])
			put(apis[name], "a")
			ok(t, m.Idle(t.Context()))
		}
		d.want(t, "east:default/a", "west:default/a")
		paused := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: map[string]string{controller.PausedAnnotation: ""}}}
		apis["west"].Put(sim.ConfigMaps, paused)
		testkit.Pass(time.Minute)
		apis["west"].Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: paused.ObjectMeta, Data: map[string]string{"b": ""}})
		apis["east"].Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"b": ""}})
		testkit.Pass(time.Minute)
		d.want(t, "east:default/a", "west:default/a", "east:default/a")
		ok(t, c.Unwatch(t.Context(), sources["west"]))
		ok(t, m.RemoveCluster(t.Context(), clusters["west"]))
		put(apis["east"], "z")
		ok(t, m.Idle(t.Context()))
		d.want(t, "east:default/a", "west:default/a", "east:default/a", "west:default/a", "east:default/z")
		stop()
		ok(t, result())
	})
}

// TestCluster_Mistakes: each is one sentence.
func TestCluster_Mistakes(t *testing.T) {
	m := newManager(newAPI(), nil)
	m.AddCluster("", at("http://west.test", newAPI()))
	m.AddCluster("west", nil)
	m.AddCluster("east", at("http://east.test", newAPI()))
	m.AddCluster("east", at("http://east.test", newAPI()))
	m.AddCluster("a\nb", at("http://east.test", newAPI()))
	m.AddCluster("north", &rest.Config{Host: "http://north:port"})
	south := m.AddCluster("south", at("http://south.test", newAPI()))
	cache.For[*unknown](south.Cache())
	err := m.Run(t.Context())
	for _, want := range []string{
		"AddCluster: the name is empty; give the cluster a name",
		`the cluster "west": the rest.Config is nil; client.LoadConfig finds one`,
		`two clusters are named "east"; give each a name of its own`,
		`AddCluster: "a\nb" has a line break or another control character; use printable text`,
		`the cluster "north": client.New: `,
		`the cluster "south": cache.For[*manager_test.unknown]: the scheme does not know the type`,
	} {
		testkit.ErrorContains(t, err, want, "Run returned")
	}
}

// TestCluster_Metrics: informers of a kind in several clusters are counted together.
func TestCluster_Metrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		counted, err := metrics.New(registry)
		ok(t, err)
		api, west := newAPI(), newAPI()
		put(api, "a")
		put(west, "a")
		put(west, "b")
		m := newManager(api, func(o *manager.Options) { o.Metrics = counted })
		cache.For[*corev1.ConfigMap](m.Cache())
		cache.For[*corev1.ConfigMap](m.AddCluster("west", at("http://west.test", west)).Cache())
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		families, err := registry.Gather()
		ok(t, err)
		for _, f := range families {
			if f.GetName() == "setpoint_informer_objects" && (len(f.GetMetric()) != 1 || f.GetMetric()[0].GetGauge().GetValue() != 3) {
				t.Errorf("the metric is %v, want 3 objects", f)
			}
		}
		stop()
		ok(t, result())
	})
}
