// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/envtest"
)

// namespaces is the number of the objects' namespaces.
const namespaces = 100

func namespaceOf(i int) string { return fmt.Sprintf("bench-%d", i%namespaces) }

// loaded reports whether a namespace is ours, not the control plane's.
func loaded(namespace string) bool { return strings.HasPrefix(namespace, "bench-") }

// startControlPlane starts a control plane and writes its kubeconfig.
func startControlPlane(ctx context.Context, kubeconfig string) (stop func() error, err error) {
	cluster, err := envtest.Start(ctx, envtest.Options{})
	if err != nil {
		return nil, err
	}
	if err := cluster.WriteKubeconfig(kubeconfig); err != nil {
		_ = cluster.Stop() //nolint:contextcheck // stop even if ctx is done
		return nil, err
	}
	return cluster.Stop, nil
}

// load creates the ConfigMaps, unless they exist.
func load(ctx context.Context, kubeconfig string, objects int) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.ContentType = -1, runtime.ContentTypeProtobuf
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	last := objects - 1
	if _, err := c.CoreV1().ConfigMaps(namespaceOf(last)).Get(ctx, objectOf(last), metav1.GetOptions{}); err == nil {
		return nil
	}
	start := time.Now()
	for i := range namespaces {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := c.CoreV1().Namespaces().Create(ctx, n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if err := create(ctx, c, objects); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "created %d ConfigMaps in %s\n", objects, time.Since(start).Round(time.Second))
	return nil
}

func objectOf(i int) string { return fmt.Sprintf("object-%d", i) }

// create creates the ConfigMaps. The last one comes after all others, because load checks for it.
// Each has two labels and 200 bytes of managedFields for one manager, which is little.
func create(ctx context.Context, c kubernetes.Interface, objects int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text := strings.Repeat("0123456789", 100)
	one := func(i int) {
		m := &corev1.ConfigMap{Data: map[string]string{"text": text}}
		m.Namespace, m.Name = namespaceOf(i), objectOf(i)
		m.Labels = map[string]string{"app.kubernetes.io/name": m.Name, "app.kubernetes.io/managed-by": "bench"}
		if _, err := c.CoreV1().ConfigMaps(m.Namespace).Create(ctx, m, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			cancel(err)
		}
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(objects-1) && ctx.Err() == nil; i = next.Add(1) - 1 {
				one(int(i))
			}
		})
	}
	workers.Wait()
	one(objects - 1)
	return context.Cause(ctx)
}
