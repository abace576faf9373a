// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestInCluster(t *testing.T) {
	p := pod()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	want := handler.ClusterKey{Cluster: "east", NamespacedName: name}
	e := handler.Event{Op: handler.Create, New: p}

	h := handler.InCluster("east", handler.Self())
	if keys, err := h.Keys(t.Context(), e); err != nil || !slices.Equal(keys, []handler.ClusterKey{want}) {
		t.Errorf("the keys are %v, %v", keys, err)
	}
	identity, ok := h.(handler.Identity[handler.ClusterKey])
	if !ok {
		t.Fatal("it is no Identity, but Self is one")
	}
	if key, ok := identity.Identity(p); key != want || !ok {
		t.Errorf("the identity is %v, %v", key, ok)
	}
	testkit.Equal(t, want.String(), "east:"+name.String())
	testkit.Equal(t, (handler.ClusterKey{NamespacedName: name}).String(), name.String())

	broken := errors.New("broken")
	mapped := handler.InCluster("west", handler.Map(func(_ context.Context, p *corev1.Pod) ([]types.NamespacedName, error) {
		return nil, broken
	}))
	if _, ok := mapped.(handler.Identity[handler.ClusterKey]); ok {
		t.Error("it is an Identity, but its handler is not")
	}
	if keys, err := mapped.Keys(t.Context(), e); !errors.Is(err, broken) || keys != nil {
		t.Errorf("the keys are %v, %v", keys, err)
	}
}

// TestInCluster_ChecksItsHandler: before anything runs.
func TestInCluster_ChecksItsHandler(t *testing.T) {
	secrets := handler.Map(func(context.Context, *corev1.Secret) ([]types.NamespacedName, error) { return nil, nil })
	for want, h := range map[string]handler.Handler[handler.ClusterKey]{
		`handler.InCluster("east"): the handler is nil`: handler.InCluster("east", nil),
		"takes a *v1.Secret":                            handler.InCluster("east", secrets),
		"":                                              handler.InCluster("east", handler.Self()),
	} {
		checker, ok := h.(typeChecker)
		if !ok {
			t.Fatalf("%T checks no type", h)
		}
		err := checker.CheckType(pod())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
