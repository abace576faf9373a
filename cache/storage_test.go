// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestDefaultStorage: only metadata and typed custom resources are decoded, unless Options say so.
func TestDefaultStorage(t *testing.T) {
	known := widgetScheme()
	cl, err := client.New(sim.NewServer(widgets).Config(), client.Options{Scheme: known})
	err = errors.Join(err, corev1.AddToScheme(known))
	testkit.NoError(t, err)
	defer cl.Close()
	c := cache.New(cl, cache.Options{})
	for want, of := range map[string][]func() hook.InformerState{
		"packed":  {cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: widgetKind}).State, cache.For[*corev1.Secret](c).State},
		"decoded": {cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: widgetKind}).State, cache.For[*Widget](c).State},
	} {
		for _, state := range of {
			s := state()
			testkit.Equal(t, s.Storage, want, s)
		}
	}
}
