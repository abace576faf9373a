// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command informer is the classic client-go program. It prints each ConfigMap that is added,
// updated or deleted, and every 30 seconds all of them. Only the factory is Setpoint's: its
// informers share one list and watch with the handles of cache.For. The test uses a fake clientset
// with a watch reactor:
//
//	go run ./examples/informer
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
)

func main() {
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	setpoint, err := client.New(cfg, client.Options{FieldOwner: "informer"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	c := cache.New(setpoint, cache.Options{})
	if err = report(factory.New(c, nil), os.Stdout); err == nil {
		err = c.Run(ctx) // runs the factory's informers
	}
	stop()
	setpoint.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// report adds an event handler that writes a line for each event.
func report(f informers.SharedInformerFactory, out io.Writer) error {
	informer, lister := f.Core().V1().ConfigMaps().Informer(), f.Core().V1().ConfigMaps().Lister()
	write := func(event string, obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj // the deletion was noticed later
		}
		m, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return
		}
		all, err := lister.ConfigMaps(m.Namespace).List(labels.Everything())
		if err != nil {
			log.Print(err)
		}
		fmt.Fprintf(out, "%s %s/%s, the namespace has %d\n", event, m.Namespace, m.Name, len(all))
	}
	_, err := informer.AddEventHandlerWithResyncPeriod(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { write("add", obj) },
		UpdateFunc: func(before, after any) {
			if before == after {
				write("resync", after)
			} else {
				write("update", after)
			}
		},
		DeleteFunc: func(obj any) { write("delete", obj) },
	}, 30*time.Second)
	return err
}
