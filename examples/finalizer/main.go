// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command finalizer owns something outside of Kubernetes. It exports each ConfigMap with the label
// example.com/export=wanted to a file, and deletes the file before the ConfigMap goes away:
//
//	go run ./examples/finalizer -dir /tmp/exports
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const label, finalizer = "example.com/export", "example.com/exported"

func main() {
	dir := flag.String("dir", ".", "`directory` for the files")
	flag.Parse()
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator(cfg, *dir, controller.Options{}).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(cfg *rest.Config, dir string, o controller.Options) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "finalizer"})
	r := &reconciler{cache.For[*corev1.ConfigMap](mgr.Cache()), client.For[*corev1.ConfigMap](mgr.Client()), dir}
	c := controller.New("export", r, o)
	c.Watch(source.Kind(r.cached, handler.Self()))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	cached *cache.Handle[*corev1.ConfigMap]
	client *client.Handle[*corev1.ConfigMap]
	dir    string
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.cached.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // without a finalizer there is no file
	}
	if err != nil {
		return controller.Result{}, err
	}
	file := filepath.Join(r.dir, key.Namespace+"_"+key.Name+".json") // no name contains "_"
	if m.DeletionTimestamp != nil || m.Labels[label] != "wanted" {
		return controller.Result{}, r.remove(ctx, m, file)
	}
	// The finalizer comes first. So no crash leaves a file without one.
	if m, err = r.client.EnsureFinalizer(ctx, m, finalizer); err != nil {
		return controller.Result{}, err
	}
	data, err := json.Marshal(m.Data)
	if err != nil {
		return controller.Result{}, controller.Terminal(err)
	}
	return controller.Result{}, os.WriteFile(file, data, 0o600)
}

// remove may run again after a crash or a failure, so a missing file is no error. It sends nothing
// for a ConfigMap without the finalizer.
func (r *reconciler) remove(ctx context.Context, m *corev1.ConfigMap, file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // retried with backoff; the ConfigMap waits
	}
	_, err := r.client.RemoveFinalizer(ctx, m, finalizer)
	return err
}
