// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"os"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestListen_ServesOtherProcesses(t *testing.T) {
	var path string
	t.Run("open", func(t *testing.T) {
		path = sim.New(t, gadgetScheme(t)).Listen(t)
		cfg := testkit.Must(clientcmd.BuildConfigFromFlags("", path))
		ctx, client := t.Context(), kubernetes.NewForConfigOrDie(cfg)
		w := testkit.Must(client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{}))
		defer w.Stop()
		testkit.NoError(t, testkit.Err(client.CoreV1().ConfigMaps("default").Create(ctx, configMap("a"), metav1.CreateOptions{})))
		testkit.Equal(t, (<-w.ResultChan()).Object.(*corev1.ConfigMap).Name, "a")
	})
	testkit.NotEqual(t, testkit.Err(os.Stat(path)), nil, "the kubeconfig after its test")
}

func TestListen_FailsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mock{TB: t}
		failure := m.run(func() { sim.New(m, gadgetScheme(t)).Listen(m) })
		testkit.HasPrefix(t, failure, "sim: Listen opens a socket, and sockets do not work in a synctest bubble; use Server.Config")
	})
}
