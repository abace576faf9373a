// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// A unit test with all built-in kinds and one object.
func ExampleNew() {
	test := func(t *testing.T) {
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "page"}}
		c, err := client.New(sim.New(t, scheme.Scheme, page).Config(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.For[*corev1.ConfigMap](c).GetLive(t.Context(), client.ObjectKeyFromObject(page)); err != nil {
			t.Error(err)
		}
	}
	_ = test // func TestPage(t *testing.T)
}

// The first update is refused, and a no-op makes no version.
func ExampleServer_Add() {
	server := sim.NewServer(sim.ConfigMaps)
	defer server.Close()
	c, err := client.New(server.Config(), client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server.Add(fault.Rule{
		Match:  fault.Match{Verbs: []string{"update"}},
		Refuse: apierrors.NewTooManyRequests("slow down", 0), Times: 1,
	})
	ctx, pages := context.Background(), client.For[*corev1.ConfigMap](c)
	page, err := pages.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "page"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = pages.Update(ctx, page)
	fmt.Println("refused:", apierrors.IsTooManyRequests(err))
	same, err := pages.Update(ctx, page)
	fmt.Println("stored again:", err == nil && same.ResourceVersion != page.ResourceVersion)
	// Output:
	// refused: true
	// stored again: false
}
