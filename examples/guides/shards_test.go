// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/shard/shardtest"
)

// TestShards_EachReplicaHasAPart runs two replicas of docs/scale-out.md. Each site is reconciled,
// each replica has sites, no site has two, and the report runs once.
func TestShards_EachReplicaHasAPart(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	type visit struct {
		key types.NamespacedName
		by  int
	}
	visits, reports := make(chan visit, 1000), make(chan struct{}, 10)
	none := func(context.Context, *corev1.Secret) ([]types.NamespacedName, error) { return nil, nil }
	report := func(ctx context.Context) error {
		reports <- struct{}{}
		<-ctx.Done()
		return nil
	}
	maps := admin(t, cluster)
	wanted := map[types.NamespacedName]bool{}
	for i := range 40 {
		key := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("site-", i)}
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
		wanted[key] = true
	}
	var record shardtest.Recorder[types.NamespacedName]
	for by := range 2 {
		r := controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			visits <- visit{key, by}
			return controller.Result{}, nil
		})
		recorded := record.Reconciler(fmt.Sprint("replica-", by), r)
		defer run(t, replica(cluster.Config(), "default", recorded, none, report))()
	}
	part := map[int]int{}
	for len(wanted) > 0 || len(part) < 2 {
		v := <-visits
		delete(wanted, v.key)
		part[v.by]++
	}
	if err := record.Check(); err != nil {
		t.Error(err) // two replicas have reconciled a site at the same time
	}
	<-reports
	if len(reports) > 0 {
		t.Error("the report runs on both replicas")
	}
}

// TestShards_ATeamHasOneSlot checks the function of docs/scale-out.md.
func TestShards_ATeamHasOneSlot(t *testing.T) {
	o := byTeam()
	a, err := o.Partitioner.Slot(types.NamespacedName{Namespace: "x", Name: "blue.shop"})
	b, err2 := o.Partitioner.Slot(types.NamespacedName{Namespace: "y", Name: "blue.blog"})
	if a != b || err != nil || err2 != nil {
		t.Errorf("slots %d and %d, errors %v and %v", a, b, err, err2)
	}
	if err := shardtest.CheckPartitioner(o.Partitioner, types.NamespacedName{Namespace: "x", Name: "blue.shop"}); err != nil {
		t.Error(err) // another call gives another slot
	}
}
