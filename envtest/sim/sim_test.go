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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/setpoint-dev/setpoint/internal/testkit"
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

// namesIn returns the names of the objects of a list, each with a space after it.
func namesIn(list runtime.Object) (names string) {
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		names += o.(metav1.Object).GetName() + " "
		return nil
	})
	return names
}

func TestObjects(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		api := sim.NewServer(sim.ConfigMaps)
		ctx, maps := t.Context(), coreclient.NewForConfigOrDie(config(api, protobuf)).ConfigMaps("default")
		created := testkit.Must(maps.Create(ctx, configMap("a", "x"), metav1.CreateOptions{}))
		testkit.NotEqual(t, created.UID, "")
		testkit.NotEqual(t, created.ResourceVersion, "")
		testkit.Equal(t, created.Data["x"], "x")
		testkit.ErrorSatisfies(t, testkit.Err(maps.Create(ctx, configMap("a"), metav1.CreateOptions{})), apierrors.IsAlreadyExists, "creating it again")
		changed := created.DeepCopy()
		changed.Data["y"] = "y"
		updated := testkit.Must(maps.Update(ctx, changed, metav1.UpdateOptions{}))
		testkit.NotEqual(t, updated.ResourceVersion, created.ResourceVersion)
		testkit.Equal(t, updated.UID, created.UID)
		testkit.ErrorSatisfies(t, testkit.Err(maps.Update(ctx, changed, metav1.UpdateOptions{})), apierrors.IsConflict, "updating an old version")
		testkit.Equal(t, testkit.Must(maps.Update(ctx, updated, metav1.UpdateOptions{})).ResourceVersion, updated.ResourceVersion, "no change")
		patched := testkit.Must(maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":null,"z":"z"}}`), metav1.PatchOptions{}))
		testkit.Len(t, patched.Data, 2)
		testkit.Equal(t, patched.Data["z"], "z")
		stale := types.UID("other")
		err := maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stale}})
		testkit.ErrorSatisfies(t, err, apierrors.IsConflict, "deleting another uid")
		testkit.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{}))
		testkit.ErrorSatisfies(t, testkit.Err(maps.Get(ctx, "a", metav1.GetOptions{})), apierrors.IsNotFound, "getting what was deleted")
		testkit.Equal(t, api.Count("", sim.ConfigMaps), 9, api.Requests())
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
	ctx, deploys := t.Context(), appsclient.NewForConfigOrDie(config(api, true)).Deployments("default")
	apply := appsac.Deployment("web", "default").WithFinalizers("example.com/wait").WithSpec(webSpec().WithReplicas(1))
	d := testkit.Must(deploys.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test", Force: true}))
	testkit.Equal(t, d.Generation, 1)
	d.Status.Replicas = 1
	d.Labels = map[string]string{"from": "status"}
	d = testkit.Must(deploys.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
	testkit.Equal(t, d.Status.Replicas, 1, "after a status update")
	testkit.Equal(t, d.Generation, 1, "after a status update")
	testkit.DeepEqual(t, d.Labels, map[string]string(nil), "after a status update")
	apply.Spec.WithReplicas(2)
	d = testkit.Must(deploys.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test", Force: true}))
	testkit.Equal(t, d.Generation, 2, "after a change of spec")
	testkit.Equal(t, d.Status.Replicas, 1, "after a change of spec")
	testkit.NoError(t, deploys.Delete(ctx, "web", metav1.DeleteOptions{}))
	d = testkit.Must(deploys.Get(ctx, "web", metav1.GetOptions{}))
	testkit.NotEqual(t, d.DeletionTimestamp, nil, "while being deleted")
	testkit.Equal(t, d.Generation, 3, "while being deleted")
	d.Finalizers = nil
	testkit.NoError(t, testkit.Err(deploys.Update(ctx, d, metav1.UpdateOptions{})))
	testkit.Equal(t, api.Object(sim.Deployments, "default", "web"), nil, "the last finalizer went")
}

func TestDiscovery(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	d := testkit.Must(discovery.NewDiscoveryClientForConfig(api.Config()))
	list := testkit.Must(d.ServerResourcesForGroupVersion("apps/v1"))
	testkit.Equal(t, list.APIResources[0].Kind, "Deployment")
	testkit.Equal(t, list.APIResources[0].Namespaced, true)
	api.Withdraw(sim.Deployments)
	testkit.ErrorSatisfies(t, testkit.Err(d.ServerResourcesForGroupVersion("apps/v1")), apierrors.IsNotFound, "after the last resource went")
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		ctx, maps := t.Context(), coreclient.NewForConfigOrDie(config(api, true)).ConfigMaps("default")
		api.Put(sim.ConfigMaps, configMap("a"))
		initial, no := true, metav1.ResourceVersionMatchNotOlderThan
		w := testkit.Must(maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &initial, ResourceVersionMatch: no, AllowWatchBookmarks: true}))
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
		testkit.Equal(t, next(w, watch.Deleted).GetResourceVersion(), api.Version())
		api.CutWatches()
		_, open := <-w.ResultChan()
		testkit.Equal(t, open, false, "after CutWatches")
		again := testkit.Must(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version}))
		next(again, watch.Modified)
		next(again, watch.Deleted)
		again.Stop()
		api.Expire()
		old := testkit.Must(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version}))
		e := <-old.ResultChan()
		testkit.Equal(t, e.Type, watch.Error)
		testkit.ErrorSatisfies(t, apierrors.FromObject(e.Object), apierrors.IsResourceExpired)
		old.Stop()
		seconds := int64(30)
		short := testkit.Must(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: api.Version(), TimeoutSeconds: &seconds}))
		begin := time.Now()
		_, open = <-short.ResultChan()
		testkit.Equal(t, open, false, "after its time")
		testkit.Equal(t, time.Since(begin), 30*time.Second)
		synctest.Wait()
		testkit.Equal(t, api.Watches(), 0)
		_, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "1000"})
		testkit.Equal(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), true, "a version to come", err)
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
		list := testkit.Must(maps.List(ctx, metav1.ListOptions{LabelSelector: "app=web"}))
		testkit.Equal(t, namesIn(list), "in ")
		w := testkit.Must(maps.Watch(ctx, metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: list.ResourceVersion}))
		defer w.Stop()
		api.Put(sim.ConfigMaps, configMap("out", "x"))
		api.Put(sim.ConfigMaps, configMap("in"))
		testkit.Equal(t, (<-w.ResultChan()).Type, watch.Deleted, "an object whose label went")
		testkit.Equal(t, namesIn(testkit.Must(maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=out"}))), "out ")
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
		err := get(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no") })
		testkit.ErrorSatisfies(t, err, apierrors.IsForbidden, "forbidden")
		err = get(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		testkit.NotEqual(t, err, nil, "refused")
		testkit.Equal(t, apierrors.ReasonForError(err), metav1.StatusReasonUnknown, "refused")
		testkit.NotEqual(t, get(func(r *sim.Request) (*http.Response, error) { return r.Hang() }), nil)
		testkit.ErrorSatisfies(t, get(nil), apierrors.IsNotFound, "without interception")
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
		testkit.Equal(t, len(informer.GetStore().List()), 2)
		testkit.Equal(t, api.Count("watch", sim.ConfigMaps), 1)
		testkit.Equal(t, api.Count("list", sim.ConfigMaps), 0)
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
