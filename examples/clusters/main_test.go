// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"sync"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a control plane with a client.
type world struct {
	*envtest.Cluster
	client *client.Client
	maps   *client.Handle[*corev1.ConfigMap]
}

// worlds starts control planes at the same time.
func worlds(t *testing.T, n int) []*world {
	t.Helper()
	all, errs := make([]*world, n), make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() {
			var w world
			if w.Cluster, errs[i] = envtest.Start(t.Context(), envtest.Options{}); errs[i] == nil {
				all[i] = &w
				w.client, errs[i] = client.New(w.Config(), client.Options{FieldOwner: "test"})
			}
		})
	}
	starting.Wait()
	for i, w := range all {
		if w != nil {
			t.Cleanup(func() {
				if err := w.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(w.client.Close)
		w.maps = client.For[*corev1.ConfigMap](w.client)
	}
	return all
}

// allowLeases lets a user use Leases, and nothing else.
func (w *world) allowLeases(t *testing.T, user string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: "leases"}
	_, err := client.For[*rbacv1.Role](w.client).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"},
	}}})
	if err == nil {
		_, err = client.For[*rbacv1.RoleBinding](w.client).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMirror_OnTwoControlPlanes: the Lease is in the second cluster, with the credentials of a user
// that may only use Leases. The operator is strict, so the writes have the manager's term.
func TestMirror_OnTwoControlPlanes(t *testing.T) {
	both := worlds(t, 2)
	east, west := both[0], both[1]
	west.allowLeases(t, "elector")
	elector, err := west.ConfigFor("elector")
	if err != nil {
		t.Fatal(err)
	}
	mgr := operator(east.Config(), west.Config(), leaderelection.Options{Namespace: "default", Config: elector})
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	key := types.NamespacedName{Namespace: "default", Name: "greeting"}
	mirrored := func(step string, err error, want map[string]string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		got, err := west.maps.GetLive(t.Context(), key)
		switch {
		case want == nil && !apierrors.IsNotFound(err):
			t.Errorf("%s: the mirror is %v, %v, want none", step, got, err)
		case want != nil && (err != nil || !maps.Equal(got.Data, want)):
			t.Errorf("%s: the mirror is %v, %v, want %v", step, got, err, want)
		}
	}
	hello, there := map[string]string{"hello": "world"}, map[string]string{"hello": "there"}
	created, err := east.maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: wanted}, Data: hello,
	})
	mirrored("create", err, hello)
	_, err = west.maps.Patch(t.Context(), key, types.MergePatchType, []byte(`{"data":{"hello":"west"}}`))
	mirrored("a change of the mirror", err, hello)
	mirrored("a deletion of the mirror", west.maps.Delete(t.Context(), key), hello)
	created.Data = there
	_, err = east.maps.Update(t.Context(), created)
	mirrored("update", err, there)
	mirrored("delete", east.maps.Delete(t.Context(), key), nil)

	lease := types.NamespacedName{Namespace: "default", Name: "mirror"}
	if l, err := client.For[*coordinationv1.Lease](west.client).GetLive(t.Context(), lease); err != nil || *l.Spec.HolderIdentity == "" {
		t.Errorf("the Lease in west is %v, %v", l, err)
	}
	if _, err := client.For[*coordinationv1.Lease](east.client).GetLive(t.Context(), lease); !apierrors.IsNotFound(err) {
		t.Errorf("a Lease in east: %v, want none", err)
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
