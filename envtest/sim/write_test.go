// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"io"
	"net/http"
	"slices"
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
)

// ask sends a request and returns code and body of the response.
func ask(t *testing.T, api *sim.Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, sim.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := api.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestV2_UnsupportedRequestsNameMethodAndPath: what a real server serves and the sim does not is an
// error, not a wrong answer.
func TestV2_UnsupportedRequestsNameMethodAndPath(t *testing.T) {
	api := sim.NewServer(sim.Pods, sim.ConfigMaps)
	for _, sub := range []string{"exec", "attach", "portforward", "proxy", "resize", "ephemeralcontainers"} {
		path := "/api/v1/namespaces/default/pods/p/" + sub
		if code, body := ask(t, api, http.MethodPost, path, "{}"); code != http.StatusNotImplemented || !strings.Contains(body, "POST "+path) {
			t.Errorf("%s: %d %s", sub, code, body)
		}
	}
	if code, body := ask(t, api, http.MethodGet, "/api/v1/namespaces/default/configmaps/a/unknown", ""); code != http.StatusNotFound {
		t.Errorf("an unknown subresource: %d %s", code, body)
	}
}

// TestV1_UIDsAndGeneratedNamesRepeat: the same requests have the same answers in every run.
func TestV1_UIDsAndGeneratedNamesRepeat(t *testing.T) {
	run := func() (names []string) {
		maps := coreclient.NewForConfigOrDie(sim.NewServer(sim.ConfigMaps).Config()).ConfigMaps("default")
		for range 200 {
			m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, m.Name+" "+string(m.UID))
		}
		return names
	}
	first, second, seen := run(), run(), map[string]bool{}
	for i, name := range first {
		if name != second[i] || len(name) != len("a-12345 ")+36 || seen[name] {
			t.Errorf("%d: %q, then %q", i, name, second[i])
		}
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
			if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &seconds}); err != nil {
				t.Fatal(err)
			}
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
		if p := grace(0); p != nil {
			t.Errorf("it is still there: %+v", p)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
	got, err := deploys.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	if err != nil || got.Spec.Replicas != 4 || got.Status.Selector != "app=web" || got.UID != d.UID {
		t.Fatalf("%+v, %v", got, err)
	}
	after, err := deploys.Get(ctx, "web", metav1.GetOptions{})
	if err != nil || *after.Spec.Replicas != 4 || after.Generation != 2 {
		t.Errorf("%+v, %v", after, err)
	}
	scale.ResourceVersion = d.ResourceVersion
	if _, err := deploys.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
	patch := []byte(`{"spec":{"replicas":-1}}`)
	if _, err := deploys.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}, "scale"); !apierrors.IsInvalid(err) {
		t.Errorf("a negative number: %v", err)
	}
}

// TestV1_DryRunStoresNothing: every writing verb answers as usual.
func TestV1_DryRunStoresNothing(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	maps, ctx, all := coreclient.NewForConfigOrDie(api.Config()).ConfigMaps("default"), t.Context(), []string{metav1.DryRunAll}
	api.Put(sim.ConfigMaps, configMap("a", "x"))
	version := api.Version()
	created, err := maps.Create(ctx, configMap("b"), metav1.CreateOptions{DryRun: all})
	if err != nil || created.UID == "" || created.ResourceVersion != "" {
		t.Errorf("%+v, %v", created, err)
	}
	updated, err := maps.Update(ctx, configMap("a", "y"), metav1.UpdateOptions{DryRun: all})
	if err != nil || updated.Data["y"] != "y" || updated.ResourceVersion != version {
		t.Errorf("%+v, %v", updated, err)
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: all}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if got := api.Version(); got != version || api.Stored(sim.ConfigMaps) != 1 {
		t.Errorf("version %s, want %s", got, version)
	}
	_, err = maps.Update(ctx, configMap("a"), metav1.UpdateOptions{DryRun: []string{"Some"}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), strconv.Quote("Some")) {
		t.Errorf("an invalid dry run: %v", err)
	}
}

// TestV1_AnApplyOfTheScaleOwnsTheReplicas: the object's own apply then conflicts.
func TestV1_AnApplyOfTheScaleOwnsTheReplicas(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	deploys, ctx := appsclient.NewForConfigOrDie(api.Config()).Deployments("default"), t.Context()
	labels, replicas := map[string]string{"app": "web"}, int32(1)
	if _, err := deploys.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{FieldManager: "author"}); err != nil {
		t.Fatal(err)
	}
	scale := applyautoscalingv1.Scale().WithName("web").WithNamespace("default").WithSpec(applyautoscalingv1.ScaleSpec().WithReplicas(4))
	if _, err := deploys.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler"}); !apierrors.IsConflict(err) {
		t.Errorf("the author owns the replicas: %v", err)
	}
	if _, err := deploys.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler", Force: true}); err != nil {
		t.Fatal(err)
	}
	var owners []string
	d, err := deploys.Get(ctx, "web", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 4 {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, entry := range d.ManagedFields {
		if strings.Contains(entry.FieldsV1.GetRawString(), `"f:replicas"`) {
			owners = append(owners, entry.Manager+" "+entry.Subresource)
		}
	}
	if !slices.Equal(owners, []string{"scaler scale"}) {
		t.Errorf("the owners of the replicas are %q", owners)
	}
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
	if err := pods.Delete().Namespace("default").Resource("pods").Name("p").Do(ctx).Into(&last); err != nil {
		t.Fatal(err)
	}
	if last.ResourceVersion != api.Version() {
		t.Errorf("the deletion answered version %s; the server has %s", last.ResourceVersion, api.Version())
	}
}

// TestV1_DeleteCollectionDeletesOnePage of the requested size.
func TestV1_DeleteCollectionDeletesOnePage(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	maps, ctx := coreclient.NewForConfigOrDie(api.Config()).ConfigMaps("default"), t.Context()
	for _, name := range []string{"a", "b", "c"} {
		api.Put(sim.ConfigMaps, configMap(name))
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{Limit: 2}); err != nil {
		t.Fatal(err)
	}
	left, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "c" {
		t.Fatalf("%+v, %v", left, err)
	}
	old := metav1.ListOptions{ResourceVersion: left.ResourceVersion}
	api.Put(sim.ConfigMaps, configMap("later"))
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, old); err != nil {
		t.Fatal(err)
	}
	if left, err := maps.List(ctx, metav1.ListOptions{}); err != nil || len(left.Items) != 1 || left.Items[0].Name != "later" {
		t.Errorf("a deletecollection of a version deletes the objects of that version only: %+v, %v", left, err)
	}
}
