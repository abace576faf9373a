// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// A test starts a control plane of its own, and creates an object in a namespace of its own. The
// first start on a machine builds the control plane, which takes some minutes.
func Example() {
	test := func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cluster, err := envtest.Start(ctx, envtest.Options{})
		testkit.NoError(t, err)
		defer func() {
			testkit.Equal(t, cluster.Stop(), nil)
		}()

		namespace, err := cluster.Namespace(ctx, "settings")
		testkit.NoError(t, err)
		clients := kubernetes.NewForConfigOrDie(cluster.Config())
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
		_, err = clients.CoreV1().ConfigMaps(namespace).Create(ctx, settings, metav1.CreateOptions{})
		testkit.Equal(t, err, nil)
	}
	_ = test // with the signature of a test
}
