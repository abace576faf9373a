// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/client"
)

// TestWriting_RunsEachWriteOfTheMovingTable runs the writes that docs/controller-runtime.md shows.
func TestWriting_RunsEachWriteOfTheMovingTable(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	c, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	maps, deployments := client.For[*corev1.ConfigMap](c), client.For[*appsv1.Deployment](c)
	site, err := createOrUpdate(ctx, c, "web:1")
	if err != nil || site.Data["image"] != "web:1" {
		t.Errorf("%v, %v", site, err)
	}
	d, err := deployments.Create(ctx, deployment())
	if err != nil {
		t.Fatal(err)
	}
	if d, err = createOrPatch(ctx, c, d); err != nil || *d.Spec.Replicas != 3 || d.Status.Replicas != 3 {
		t.Errorf("%v, %v", d, err)
	}
	if d, err = mergeFrom(ctx, c, d, 4); err != nil || *d.Spec.Replicas != 4 || d.Status.Replicas != 4 {
		t.Errorf("%v, %v", d, err)
	}
	if err := statusPatches(ctx, c, client.ObjectKeyFromObject(d)); err != nil {
		t.Error(err)
	}
	if err := scale(ctx, c, d, 5); err != nil {
		t.Error(err)
	}
	if err := applyUnforced(ctx, c, appsac.Deployment("web", "default").WithSpec(appsac.DeploymentSpec().WithReplicas(1))); err != nil {
		t.Error(err)
	}
	if d, err = deployments.GetLive(ctx, client.ObjectKeyFromObject(d)); err != nil || *d.Spec.Replicas != 5 || d.Status.Replicas != 3 {
		t.Errorf("%v, %v", d, err)
	}
	d.Spec.Replicas = new(int32(9))
	if err := dryRun(ctx, c, d); err != nil {
		t.Error(err)
	}
	s, err := strict(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = client.For[*appsv1.Deployment](s).Patch(ctx, client.ObjectKeyFromObject(d), types.MergePatchType, []byte(`{"spec":{"replicaz":1}}`))
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Error(err)
	}
	if err := untilScaled(ctx, c, 3); err != nil {
		t.Error(err)
	}
	p, key := &painter{loud{maps}}, types.NamespacedName{Namespace: "default", Name: "color"}
	for _, color := range []string{"red", "blue"} {
		if err := p.paint(ctx, key, color); err != nil {
			t.Error(err)
		}
	}
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", Labels: map[string]string{"app": "web"}}}
	if _, err := maps.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	if err := deleteAllOf(ctx, c, "web"); err != nil {
		t.Error(err)
	}
	if kept, err := maps.GetLive(ctx, key); err != nil || kept.Data["color"] != "blue" {
		t.Errorf("%v, %v", kept, err)
	}
	if _, err := maps.GetLive(ctx, client.ObjectKeyFromObject(old)); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
