// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(api *sim.Server, protobuf bool) *rest.Config {
	cfg := api.Config()
	if protobuf {
		cfg.ContentType = "application/vnd.kubernetes.protobuf"
		cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	return cfg
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{}}
	for _, d := range data {
		c.Data[d] = d
	}
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestObjects(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		api := sim.NewServer(sim.ConfigMaps)
		ctx, maps, ok := t.Context(), coreclient.NewForConfigOrDie(config(api, protobuf)).ConfigMaps("default"), must[*corev1.ConfigMap](t)
		created := ok(maps.Create(ctx, configMap("a", "x"), metav1.CreateOptions{}))
		if created.UID == "" || created.ResourceVersion == "" || created.Data["x"] != "x" {
			t.Errorf("created %+v", created)
		}
		if _, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("creating it again: %v", err)
		}
		changed := created.DeepCopy()
		changed.Data["y"] = "y"
		updated := ok(maps.Update(ctx, changed, metav1.UpdateOptions{}))
		if updated.ResourceVersion == created.ResourceVersion || updated.UID != created.UID {
			t.Errorf("updated to %+v", updated)
		}
		if _, err := maps.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("updating an old version: %v", err)
		}
		if same := ok(maps.Update(ctx, updated, metav1.UpdateOptions{})); same.ResourceVersion != updated.ResourceVersion {
			t.Error("an update that changes nothing made a version")
		}
		patched := ok(maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":null,"z":"z"}}`), metav1.PatchOptions{}))
		if len(patched.Data) != 2 || patched.Data["z"] != "z" {
			t.Errorf("patched to %v", patched.Data)
		}
		stale := types.UID("other")
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stale}}); !apierrors.IsConflict(err) {
			t.Errorf("deleting another uid: %v", err)
		}
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("getting what was deleted: %v", err)
		}
		if n := api.Count("", sim.ConfigMaps); n != 9 {
			t.Errorf("%d requests: %v", n, api.Requests())
		}
	}
}

// webSpec is the spec of a valid Deployment.
func webSpec() *appsac.DeploymentSpecApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return appsac.DeploymentSpec().WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
			WithContainers(coreac.Container().WithName("web").WithImage("web:1"))))
}

func TestStatusGenerationFinalizers(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	ctx, deploys, ok := t.Context(), appsclient.NewForConfigOrDie(config(api, true)).Deployments("default"), must[*appsv1.Deployment](t)
	apply := appsac.Deployment("web", "default").WithFinalizers("example.com/wait").WithSpec(webSpec().WithReplicas(1))
	d := ok(deploys.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test", Force: true}))
	if d.Generation != 1 {
		t.Errorf("generation %d", d.Generation)
	}
	d.Status.Replicas = 1
	d.Labels = map[string]string{"from": "status"}
	d = ok(deploys.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
	if d.Status.Replicas != 1 || d.Generation != 1 || d.Labels != nil {
		t.Errorf("after a status update: %+v", d)
	}
	apply.Spec.WithReplicas(2)
	d = ok(deploys.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test", Force: true}))
	if d.Generation != 2 || d.Status.Replicas != 1 {
		t.Errorf("after a change of spec: %+v", d)
	}
	if err := deploys.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d = ok(deploys.Get(ctx, "web", metav1.GetOptions{}))
	if d.DeletionTimestamp == nil || d.Generation != 3 {
		t.Errorf("while being deleted: %+v", d)
	}
	d.Finalizers = nil
	ok(deploys.Update(ctx, d, metav1.UpdateOptions{}))
	if api.Object(sim.Deployments, "default", "web") != nil {
		t.Error("the last finalizer went, the object did not")
	}
}

func TestDiscovery(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	d, err := discovery.NewDiscoveryClientForConfig(api.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion("apps/v1")
	if err != nil || list.APIResources[0].Kind != "Deployment" || !list.APIResources[0].Namespaced {
		t.Errorf("%v, %v", list, err)
	}
	api.Withdraw(sim.Deployments)
	if _, err := d.ServerResourcesForGroupVersion("apps/v1"); !apierrors.IsNotFound(err) {
		t.Errorf("after the last resource went: %v", err)
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		ctx, maps := t.Context(), coreclient.NewForConfigOrDie(config(api, true)).ConfigMaps("default")
		api.Put(sim.ConfigMaps, configMap("a"))
		initial, no := true, metav1.ResourceVersionMatchNotOlderThan
		w := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &initial, ResourceVersionMatch: no, AllowWatchBookmarks: true}))
		next := func(w watch.Interface, kind watch.EventType) metav1.Object {
			t.Helper()
			e, open := <-w.ResultChan()
			if !open || e.Type != kind {
				t.Fatalf("got %v (open: %v), want %s", e, open, kind)
			}
			o, _ := e.Object.(metav1.Object)
			return o
		}
		next(w, watch.Added)
		version := next(w, watch.Bookmark).GetResourceVersion()
		api.Put(sim.ConfigMaps, configMap("a", "x"))
		next(w, watch.Modified)
		api.Remove(sim.ConfigMaps, "default", "a")
		if o := next(w, watch.Deleted); o.GetResourceVersion() != api.Version() {
			t.Errorf("deleted at %s, want %s", o.GetResourceVersion(), api.Version())
		}
		api.CutWatches()
		if _, open := <-w.ResultChan(); open {
			t.Error("the watch goes on after CutWatches")
		}
		again := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version}))
		next(again, watch.Modified)
		next(again, watch.Deleted)
		again.Stop()
		api.Expire()
		old := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version}))
		if e := <-old.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("got %v, want 410", e)
		}
		old.Stop()
		seconds := int64(30)
		short := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: api.Version(), TimeoutSeconds: &seconds}))
		begin := time.Now()
		if _, open := <-short.ResultChan(); open || time.Since(begin) != 30*time.Second {
			t.Errorf("ended after %s, open: %v", time.Since(begin), open)
		}
		synctest.Wait()
		if n := api.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		if _, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "1000"}); !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("a version to come: %v", err)
		}
	})
}

func TestSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		ctx, maps := t.Context(), coreclient.NewForConfigOrDie(config(api, false)).ConfigMaps("")
		in := configMap("in")
		in.Labels = map[string]string{"app": "web"}
		api.Put(sim.ConfigMaps, in)
		api.Put(sim.ConfigMaps, configMap("out"))
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		w := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: list.ResourceVersion}))
		defer w.Stop()
		api.Put(sim.ConfigMaps, configMap("out", "x"))
		api.Put(sim.ConfigMaps, configMap("in"))
		if e := <-w.ResultChan(); e.Type != watch.Deleted {
			t.Errorf("an object whose label went: %v", e)
		}
		list, err = maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=out"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "out" {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestIntercept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		maps := coreclient.NewForConfigOrDie(config(api, false)).ConfigMaps("default")
		get := func(answer func(*sim.Request) (*http.Response, error)) error {
			api.Intercept(answer)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := maps.Get(ctx, "a", metav1.GetOptions{})
			return err
		}
		if err := get(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no") }); !apierrors.IsForbidden(err) {
			t.Errorf("forbidden: %v", err)
		}
		if err := get(func(r *sim.Request) (*http.Response, error) { return r.Refuse() }); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("refused: %v", err)
		}
		if err := get(func(r *sim.Request) (*http.Response, error) { return r.Hang() }); err == nil {
			t.Error("a request that hangs succeeded")
		}
		if err := get(nil); !apierrors.IsNotFound(err) {
			t.Errorf("without interception: %v", err)
		}
	})
}

// TestInformer shows that client-go's informer works, with one request.
func TestInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, configMap("a"))
		ctx, cancel := context.WithCancel(t.Context())
		lw := toolscache.NewListWatchFromClient(coreclient.NewForConfigOrDie(config(api, true)).RESTClient(), "configmaps", "", fields.Everything())
		informer := toolscache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
		done := make(chan struct{})
		go func() { defer close(done); informer.RunWithContext(ctx) }()
		<-informer.HasSyncedChecker().Done()
		api.Put(sim.ConfigMaps, configMap("b"))
		synctest.Wait()
		if n := len(informer.GetStore().List()); n != 2 {
			t.Errorf("%d objects", n)
		}
		if w, l := api.Count("watch", sim.ConfigMaps), api.Count("list", sim.ConfigMaps); w != 1 || l != 0 {
			t.Errorf("%d watches and %d lists", w, l)
		}
		cancel()
		<-done
	})
}

// TestLeaderElection shows that client-go's elector works.
func TestLeaderElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		elect := func(ctx context.Context, id string, leading func()) {
			cfg := rest.CopyConfig(api.Config())
			cfg.Timeout = 5 * time.Second
			lock := &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "lease"}, Client: coordinationclient.NewForConfigOrDie(cfg),
				LockConfig: resourcelock.ResourceLockConfig{Identity: id},
			}
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leading() }, OnStoppedLeading: func() {}},
			})
		}
		first, stop := context.WithCancel(t.Context())
		a, b := make(chan struct{}), make(chan struct{})
		go elect(first, "a", func() { close(a) })
		<-a
		second, stopSecond := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); elect(second, "b", func() { close(b) }) }()
		time.Sleep(time.Minute)
		select {
		case <-b:
			t.Error("both lead")
		default:
		}
		stop()
		<-b
		stopSecond()
		<-ended
	})
}
