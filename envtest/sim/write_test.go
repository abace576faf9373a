// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyautoscalingv1 "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// ask sends a request and returns code and body of the response.
func ask(t *testing.T, api *sim.Server, method, path, body string) (int, string) {
	t.Helper()
	code, _, answer := exchange(t, api, method, path, body, "Content-Type", "application/json")
	return code, answer
}

// TestV2_UnsupportedRequestsNameMethodAndPath: what a real server serves and the sim does not is an
// error, not a wrong answer.
func TestV2_UnsupportedRequestsNameMethodAndPath(t *testing.T) {
	api := sim.NewServer(sim.Pods, sim.ConfigMaps)
	for _, sub := range []string{"exec", "attach", "portforward", "proxy", "resize", "ephemeralcontainers"} {
		path := "/api/v1/namespaces/default/pods/p/" + sub
		code, body := ask(t, api, http.MethodPost, path, "{}")
		testkit.Equal(t, code, http.StatusNotImplemented, sub)
		testkit.Contains(t, body, "POST "+path, sub)
	}
	code, body := ask(t, api, http.MethodGet, "/api/v1/namespaces/default/configmaps/a/unknown", "")
	testkit.Equal(t, code, http.StatusNotFound, "an unknown subresource", body)
}

// TestV1_UIDsAndGeneratedNamesRepeat: the same requests have the same answers in every run.
func TestV1_UIDsAndGeneratedNamesRepeat(t *testing.T) {
	run := func() (names []string) {
		maps := coreclient.NewForConfigOrDie(sim.NewServer(sim.ConfigMaps).Config()).ConfigMaps("default")
		for range 200 {
			m := testkit.Must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{}))
			names = append(names, m.Name+" "+string(m.UID))
		}
		return names
	}
	first, second, seen := run(), run(), map[string]bool{}
	for i, name := range first {
		testkit.Equal(t, name, second[i], i)
		testkit.Len(t, name, len("a-12345 ")+36, i)
		testkit.Equal(t, seen[name], false, i, name)
		seen[name] = true
	}
}

// TestV1_PodsEndAfterTheirGracePeriod: a Pod on a node stays until the kubelet deletes it with a
// grace period of zero.
func TestV1_PodsEndAfterTheirGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Pods)
		pods, ctx := coreclient.NewForConfigOrDie(api.Config()).Pods("default"), t.Context()
		api.Put(sim.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		})
		grace := func(seconds int64) *corev1.Pod {
			t.Helper()
			testkit.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &seconds}))
			p, err := pods.Get(ctx, "p", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return p
		}
		begin := time.Now()
		for _, step := range []struct{ asked, want int64 }{{30, 30}, {60, 30}, {10, 10}} {
			p := grace(step.asked)
			if p == nil || *p.DeletionGracePeriodSeconds != step.want || p.DeletionTimestamp.Sub(begin) != time.Duration(step.want)*time.Second {
				t.Fatalf("asked for %d: %+v", step.asked, p)
			}
		}
		testkit.Equal(t, grace(0), nil)
	})
}

// TestV1_ScaleChangesReplicasOnly: the scale subresource of a Deployment.
func TestV1_ScaleChangesReplicasOnly(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	deploys, ctx := appsclient.NewForConfigOrDie(api.Config()).Deployments("default"), t.Context()
	labels := map[string]string{"app": "web"}
	d, err := deploys.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{})
	testkit.NoError(t, err)
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
	got := testkit.Must(deploys.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}))
	testkit.Equal(t, got.Spec.Replicas, 4)
	testkit.Equal(t, got.Status.Selector, "app=web")
	testkit.Equal(t, got.UID, d.UID)
	after := testkit.Must(deploys.Get(ctx, "web", metav1.GetOptions{}))
	testkit.Equal(t, *after.Spec.Replicas, 4)
	testkit.Equal(t, after.Generation, 2)
	scale.ResourceVersion = d.ResourceVersion
	testkit.ErrorSatisfies(t, testkit.Err(deploys.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})), apierrors.IsConflict, "an old version")
	patch := []byte(`{"spec":{"replicas":-1}}`)
	_, err = deploys.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	testkit.ErrorSatisfies(t, err, apierrors.IsInvalid, "a negative number")
}

// TestV1_DryRunStoresNothing: every writing verb answers as usual.
func TestV1_DryRunStoresNothing(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	maps, ctx, all := coreclient.NewForConfigOrDie(api.Config()).ConfigMaps("default"), t.Context(), []string{metav1.DryRunAll}
	api.Put(sim.ConfigMaps, configMap("a", "x"))
	version := api.Version()
	created := testkit.Must(maps.Create(ctx, configMap("b"), metav1.CreateOptions{DryRun: all}))
	testkit.NotEqual(t, created.UID, "")
	testkit.Equal(t, created.ResourceVersion, "")
	updated := testkit.Must(maps.Update(ctx, configMap("a", "y"), metav1.UpdateOptions{DryRun: all}))
	testkit.Equal(t, updated.Data["y"], "y")
	testkit.Equal(t, updated.ResourceVersion, version)
	testkit.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{DryRun: all}))
	testkit.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: all}, metav1.ListOptions{}))
	testkit.Equal(t, api.Version(), version)
	testkit.Equal(t, api.Stored(sim.ConfigMaps), 1)
	_, err := maps.Update(ctx, configMap("a"), metav1.UpdateOptions{DryRun: []string{"Some"}})
	testkit.ErrorSatisfies(t, err, apierrors.IsInvalid, "an invalid dry run")
	testkit.ErrorContains(t, err, strconv.Quote("Some"), "an invalid dry run")
}

// TestV1_AnApplyOfTheScaleOwnsTheReplicas: the object's own apply then conflicts.
func TestV1_AnApplyOfTheScaleOwnsTheReplicas(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	deploys, ctx := appsclient.NewForConfigOrDie(api.Config()).Deployments("default"), t.Context()
	labels, replicas := map[string]string{"app": "web"}, int32(1)
	testkit.NoError(t, testkit.Err(deploys.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{FieldManager: "author"})))
	scale := applyautoscalingv1.Scale().WithName("web").WithNamespace("default").WithSpec(applyautoscalingv1.ScaleSpec().WithReplicas(4))
	_, err := deploys.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler"})
	testkit.ErrorSatisfies(t, err, apierrors.IsConflict, "the author owns the replicas")
	testkit.NoError(t, testkit.Err(deploys.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler", Force: true})))
	var owners []string
	d := testkit.Must(deploys.Get(ctx, "web", metav1.GetOptions{}))
	testkit.Equal(t, *d.Spec.Replicas, 4)
	for _, entry := range d.ManagedFields {
		if strings.Contains(entry.FieldsV1.GetRawString(), `"f:replicas"`) {
			owners = append(owners, entry.Manager+" "+entry.Subresource)
		}
	}
	testkit.SlicesEqual(t, owners, []string{"scaler scale"}, "of the replicas")
}

// TestV1_ADeletionHasAVersion: the last event of a Pod is newer than the mark before it.
func TestV1_ADeletionHasAVersion(t *testing.T) {
	api := sim.NewServer(sim.Pods)
	pods, ctx := coreclient.NewForConfigOrDie(api.Config()).RESTClient(), t.Context()
	api.Put(sim.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	var last corev1.Pod
	testkit.NoError(t, pods.Delete().Namespace("default").Resource("pods").Name("p").Do(ctx).Into(&last))
	testkit.Equal(t, last.ResourceVersion, api.Version())
}

// TestV1_DeleteCollectionDeletesOnePage of the requested size.
func TestV1_DeleteCollectionDeletesOnePage(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	maps, ctx := coreclient.NewForConfigOrDie(api.Config()).ConfigMaps("default"), t.Context()
	for _, name := range []string{"a", "b", "c"} {
		api.Put(sim.ConfigMaps, configMap(name))
	}
	testkit.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{Limit: 2}))
	left := testkit.Must(maps.List(ctx, metav1.ListOptions{}))
	testkit.Equal(t, namesIn(left), "c ")
	old := metav1.ListOptions{ResourceVersion: left.ResourceVersion}
	api.Put(sim.ConfigMaps, configMap("later"))
	testkit.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, old))
	left = testkit.Must(maps.List(ctx, metav1.ListOptions{}))
	testkit.Equal(t, namesIn(left), "later ", "a deletecollection of a version deletes the objects of that version only")
}
