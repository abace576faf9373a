// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// A create is held, observed and released. The next one finds the API server busy.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := envtest.Start(ctx, envtest.Options{})
	if err != nil {
		panic(err)
	}
	defer cluster.Stop()
	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
	if err != nil {
		panic(err)
	}
	defer proxy.Stop()
	cfg, err := proxy.Config()
	if err != nil {
		panic(err)
	}
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")

	creates := fault.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}
	hold := proxy.Add(fault.Rule{Match: creates, Hold: true, Times: 1})
	result := make(chan error)
	go func() {
		_, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
		result <- err
	}()
	if err := hold.WaitHeld(ctx, 1); err != nil {
		panic(err)
	}
	hold.Release()
	fmt.Println("first:", <-result)

	proxy.Add(fault.Rule{Match: creates, Refuse: apierrors.NewServiceUnavailable("not now")})
	_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{})
	fmt.Println("second:", err)
}
