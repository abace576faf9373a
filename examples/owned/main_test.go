// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOwned_HasAsManySecretsAsThePoolAsksFor grows a pool, deletes one of its Secrets, and shrinks
// the pool.
func TestOwned_HasAsManySecretsAsThePoolAsksFor(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	mgr := operator(cluster.Config())
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()

	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps, secrets := client.For[*corev1.ConfigMap](direct), client.For[*corev1.Secret](direct)

	// tokens waits until the operator has nothing left to do, and returns the token of each Secret.
	tokens := func() map[string]string {
		t.Helper()
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for s, err := range secrets.ListLive(t.Context(), client.ListOptions{Namespace: "default", Labels: pool.AsSelector()}) {
			if err != nil {
				t.Fatal(err)
			}
			found[s.Name] = string(s.Data["token"])
		}
		return found
	}
	object, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team", Labels: pool},
		Data:       map[string]string{"tokens": "30"},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := tokens()
	for i := range 30 {
		if first[fmt.Sprintf("team-%d", i)] == "" {
			t.Errorf("there is no team-%d", i)
		}
	}

	if err := secrets.Delete(t.Context(), types.NamespacedName{Namespace: "default", Name: "team-7"}); err != nil {
		t.Fatal(err)
	}
	second := tokens()
	if len(second) != 30 || second["team-7"] == first["team-7"] || second["team-8"] != first["team-8"] {
		t.Errorf("a Secret was deleted: the pool became %v, it was %v", second, first)
	}

	object.Data["tokens"] = "2"
	if _, err := configMaps.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if third := tokens(); len(third) != 2 || third["team-0"] != first["team-0"] || third["team-1"] != first["team-1"] {
		t.Errorf("the pool of 2 has %v", third)
	}

	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
