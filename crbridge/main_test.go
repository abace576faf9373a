// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		os.Exit(replicaMain())
	}
	log.SetLogger(logr.Discard()) // else it warns after a while
	goleak.VerifyTestMain(m)
}

// managerOn returns a manager that logs to the test, and serves nothing.
func managerOn(t *testing.T, cfg *rest.Config, o ctrl.Options, s ctrl.Settings) *ctrl.Bridge {
	t.Helper()
	o.Logger, o.Metrics = testr.New(t), metricsserver.Options{BindAddress: "0"}
	o.Controller.SkipNameValidation = new(true)
	mgr, err := ctrl.New(cfg, o, s)
	testkit.NoError(t, err)
	return mgr
}

func ended(t *testing.T, stop func() error) {
	t.Helper()
	testkit.Equal(t, stop(), nil)
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}
