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
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestWriting_RunsEachWriteOfTheMovingTable runs the writes that docs/controller-runtime.md shows.
func TestWriting_RunsEachWriteOfTheMovingTable(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	c, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	testkit.NoError(t, err)
	defer c.Close()
	maps, deployments := client.For[*corev1.ConfigMap](c), client.For[*appsv1.Deployment](c)
	site, err := createOrUpdate(ctx, c, "web:1")
	testkit.NoError(t, err)
	testkit.Equal(t, site.Data["image"], "web:1")
	d, err := deployments.Create(ctx, deployment())
	testkit.NoError(t, err)
	if d, err = createOrPatch(ctx, c, d); err != nil || *d.Spec.Replicas != 3 || d.Status.Replicas != 3 {
		t.Errorf("%v, %v", d, err)
	}
	if d, err = mergeFrom(ctx, c, d, 4); err != nil || *d.Spec.Replicas != 4 || d.Status.Replicas != 4 {
		t.Errorf("%v, %v", d, err)
	}
	testkit.Equal(t, statusPatches(ctx, c, client.ObjectKeyFromObject(d)), nil)
	testkit.Equal(t, scale(ctx, c, d, 5), nil)
	testkit.Equal(t, applyUnforced(ctx, c, appsac.Deployment("web", "default").WithSpec(appsac.DeploymentSpec().WithReplicas(1))), nil)
	if d, err = deployments.GetLive(ctx, client.ObjectKeyFromObject(d)); err != nil || *d.Spec.Replicas != 5 || d.Status.Replicas != 3 {
		t.Errorf("%v, %v", d, err)
	}
	d.Spec.Replicas = new(int32(9))
	testkit.Equal(t, dryRun(ctx, c, d), nil)
	s, err := strict(c)
	testkit.NoError(t, err)
	defer s.Close()
	_, err = client.For[*appsv1.Deployment](s).Patch(ctx, client.ObjectKeyFromObject(d), types.MergePatchType, []byte(`{"spec":{"replicaz":1}}`))
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Error(err)
	}
	testkit.Equal(t, untilScaled(ctx, c, 3), nil)
	p, key := &painter{loud{maps}}, types.NamespacedName{Namespace: "default", Name: "color"}
	for _, color := range []string{"red", "blue"} {
		testkit.Equal(t, p.paint(ctx, key, color), nil)
	}
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", Labels: map[string]string{"app": "web"}}}
	testkit.NoError(t, testkit.Err(maps.Create(ctx, old)))
	testkit.Equal(t, deleteAllOf(ctx, c, "web"), nil)
	testkit.Equal(t, testkit.Must(maps.GetLive(ctx, key)).Data["color"], "blue")
	testkit.ErrorSatisfies(t, testkit.Err(maps.GetLive(ctx, client.ObjectKeyFromObject(old))), apierrors.IsNotFound)
}
