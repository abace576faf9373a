// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const mutationReader = "SETPOINT_TEST_MUTATION_READER"

// TestMutationDetector runs readers in processes of their own, because client-go reads its variable
// when a program starts. The cache is packed by its options.
func TestMutationDetector(t *testing.T) {
	for reader, found := range map[string]bool{"changes": true, "reads": false} {
		t.Run(reader, func(t *testing.T) {
			// A report about a packed object would be endless: it prints what the object points to.
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestMutationDetector_Reader$", "-test.count=1")
			child.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true", mutationReader+"="+reader)
			out, err := child.CombinedOutput()
			testkit.Equal(t, strings.Contains(string(out), "ALTERED"), found, "the detector found a change")
			testkit.Equal(t, err != nil, found, fmt.Sprintf("the program: %v, %.2000s", err, out))
		})
	}
}

// TestMutationDetector_Reader is the process of TestMutationDetector.
func TestMutationDetector_Reader(t *testing.T) {
	reader := os.Getenv(mutationReader)
	if reader == "" {
		t.Skip("runs in a process of its own, see TestMutationDetector")
	}
	synctest.Test(t, func(t *testing.T) {
		key := types.NamespacedName{Namespace: "default", Name: "web"}
		api := sim.New(t, scheme.Scheme, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{"a": "b"},
		})
		cl, err := client.New(api.Config(), client.Options{})
		testkit.NoError(t, err)
		defer cl.Close()
		c := cache.New(cl, cache.Options{Storage: cache.Packed})
		handle := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		testkit.NoError(t, handle.WaitForSync(t.Context()))
		for range handle.Owned(t.Context(), "an owner", cache.ListOptions{}) { // computes an index
			t.Error("it has no owner")
		}
		m, err := handle.Shared().Get(t.Context(), key)
		testkit.NoError(t, err)
		if reader == "changes" {
			m.Data["a"] = "c"
		}
		time.Sleep(3 * time.Second) // of virtual time: the detector looks once a second
	})
}
