// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestPrune(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "owner-uid"}}
	put := func(called string, controller types.UID, change ...func(*corev1.ConfigMap)) {
		yes := true
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: called, OwnerReferences: []metav1.OwnerReference{
			// The server does not know the kind, so it does not collect the object.
			{APIVersion: "example.com/v1", Kind: "Owner", Name: "owner", UID: controller, Controller: &yes},
		}}}
		for _, f := range change {
			f(m)
		}
		api.Put(sim.ConfigMaps, m)
	}
	put("wanted", owner.UID)
	put("old", owner.UID)
	put("theirs", "other-uid")
	put("owned", owner.UID, func(m *corev1.ConfigMap) { m.OwnerReferences[0].Controller = nil })
	put("dying", owner.UID, func(m *corev1.ConfigMap) { m.Finalizers = []string{finalizer} })
	put("gone", owner.UID)
	put("replaced", owner.UID)
	put("protected", owner.UID)
	testkit.NoError(t, maps.Delete(ctx, name("default", "dying")))
	all, err := client.Collect(maps.ListLive(ctx, client.ListOptions{}))
	if err != nil || len(all) != 8 {
		t.Fatal(all, err)
	}
	api.Remove(sim.ConfigMaps, "default", "gone")
	api.Remove(sim.ConfigMaps, "default", "replaced")
	put("replaced", owner.UID)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "delete" && r.Name == "protected" {
			return r.Fail(http.StatusForbidden, "no right to delete it")
		}
		return nil, nil
	})
	keep := func(m *corev1.ConfigMap) bool { return m.Name == "wanted" }
	before := len(api.Requests())
	deleted, err := maps.Prune(ctx, owner, append(all, nil), keep)
	wants(t, err, "prune ConfigMap default/protected", "no right to delete it")
	testkit.ErrorSatisfies(t, err, apierrors.IsForbidden)
	testkit.NotContains(t, fmt.Sprint(err), "replaced")
	testkit.NotContains(t, fmt.Sprint(err), "gone")
	testkit.Equal(t, namesOf(deleted), "old")
	var asked []string
	for _, r := range api.Requests()[before:] {
		asked = append(asked, r.Name)
	}
	testkit.SlicesEqual(t, slices.Sorted(slices.Values(asked)), []string{"gone", "old", "protected", "replaced"}, fmt.Sprintf("asked to delete %s", asked))
	left, err := client.Collect(maps.ListLive(ctx, client.ListOptions{}))
	testkit.NoError(t, err, "left")
	testkit.Len(t, left, 6, "left")
}

func TestPruneMistakes(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	none := func(*corev1.ConfigMap) bool { return false }
	yes, owner := true, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	owned := []*corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "a", OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: &yes}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: &yes}}}},
	}
	_, err := maps.Prune(ctx, nil, nil, none)
	wants(t, err, "prune ConfigMap", "the owner is nil")
	_, err = maps.Prune(ctx, (*corev1.Pod)(nil), nil, none)
	wants(t, err, "prune ConfigMap", "the owner is nil")
	_, err = maps.Prune(ctx, &corev1.Pod{}, nil, none)
	wants(t, err, "has no UID")
	_, err = maps.Prune(ctx, owner, nil, nil)
	wants(t, err, "keep is nil")
	_, err = maps.Prune(ctx, owner, owned, none, client.FieldOwner("x"))
	wants(t, err, "delete ConfigMap: this call does not take client.FieldOwner")
	_, err = maps.Prune(ctx, owner, owned, none)
	wants(t, err, "prune ConfigMap default/b", "neither a UID")
	stopped, stop := context.WithCancelCause(ctx)
	why := errors.New("enough of it")
	stop(why)
	before := len(api.Requests())
	if _, err = maps.Prune(stopped, owner, owned, none); !errors.Is(err, why) || len(api.Requests()) != before {
		t.Errorf("got %v", err)
	}
}
