// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/source"
)

// succession is what the leader before wrote, and what the next one has in its caches.
type succession struct {
	name     string
	scope    func(namespace, other string) cache.Scope
	existing int // objects in the scope
	write    func(ctx context.Context, c *client.Handle[*corev1.ConfigMap], namespace, other string, n int) error
}

var marked = map[string]string{"takeover": "yes"}

func inNamespace(namespace, _ string) cache.Scope {
	return cache.Scope{Namespaces: cache.NewSet(namespace)}
}

func selected(namespace, _ string) cache.Scope {
	return cache.Scope{Namespaces: cache.NewSet(namespace), Labels: labels.SelectorFromSet(marked)}
}

func inTwo(namespace, other string) cache.Scope {
	return cache.Scope{Namespaces: cache.NewSet(namespace, other)}
}

func everywhere(string, string) cache.Scope { return cache.Scope{} }

var successions = []succession{
	{"an object of all namespaces", everywhere, 10, writesOne(marked)},
	{"an object of the namespace", inNamespace, 10, writesOne(marked)},
	{"an object with the label", selected, 10, writesOne(marked)},
	{"an object without the label", selected, 10, writesOne(nil)},
	{"an object without the label, of 5000", selected, 5000, writesOne(nil)},
	{"an object in the other namespace", inTwo, 10, writesOther},
	{"a deletion", everywhere, 10, deletesOne},
}

func made(namespace, name string, with map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: with}}
}

func writesOne(with map[string]string) func(context.Context, *client.Handle[*corev1.ConfigMap], string, string, int) error {
	return func(ctx context.Context, c *client.Handle[*corev1.ConfigMap], namespace, _ string, n int) error {
		_, err := c.Create(ctx, made(namespace, "last-"+strconv.Itoa(n), with))
		return err
	}
}

func writesOther(ctx context.Context, c *client.Handle[*corev1.ConfigMap], _, other string, n int) error {
	_, err := c.Create(ctx, made(other, "last-"+strconv.Itoa(n), nil))
	return err
}

func deletesOne(ctx context.Context, c *client.Handle[*corev1.ConfigMap], namespace, _ string, n int) error {
	return c.Delete(ctx, types.NamespacedName{Namespace: namespace, Name: "existing-" + strconv.Itoa(n)})
}

// takeovers measures the time from the acquisition of a released Lease to the first Reconcile.
func (f *failover) takeovers(ctx context.Context, w *report, a *arena) error {
	fmt.Fprintf(w, "from the Lease to the first Reconcile, %d releases; the last write is\tleast\tmedian\tmost\t\n", f.rounds)
	for _, s := range successions {
		took, err := s.measure(ctx, a, f.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		slices.Sort(took)
		fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t\n", s.name, ms(took[0]), ms(took[len(took)/2]), ms(took[len(took)-1]))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (s *succession) measure(ctx context.Context, a *arena, rounds int) (took []time.Duration, err error) {
	namespace, err := a.new(ctx)
	if err != nil {
		return nil, err
	}
	other, err := a.new(ctx)
	if err != nil {
		return nil, err
	}
	for n := range max(s.existing, rounds) {
		if _, err := a.direct.CoreV1().ConfigMaps(namespace).Create(ctx, made(namespace, "existing-"+strconv.Itoa(n), marked), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	leader, err := s.heir(ctx, a.cfg, namespace, other, -1)
	if err != nil {
		return nil, err
	}
	<-leader.first
	for n := range rounds {
		next, err := s.heir(ctx, a.cfg, namespace, other, n)
		if err != nil {
			return took, err
		}
		<-next.control.Synced()
		time.Sleep(300 * time.Millisecond) // it watches the Lease
		leader.writes.Store(true)
		leader.control.Requeue(types.NamespacedName{Namespace: namespace, Name: "existing-" + strconv.Itoa(rounds-1)})
		if err := <-leader.wrote; err != nil {
			return took, err
		}
		leader.stop()
		if err := <-leader.ended; err != nil {
			return took, err
		}
		took = append(took, (<-next.first).Sub(next.led))
		fmt.Fprintf(os.Stderr, "%s: %.1f ms\n", s.name, ms(took[n]))
		leader = next
	}
	leader.stop()
	return took, <-leader.ended
}

// heir is a replica that leads after another one.
type heir struct {
	control *controller.Controller[types.NamespacedName]
	stop    context.CancelFunc
	ended   chan error
	led     time.Time      // set before first is sent
	first   chan time.Time // its first Reconcile
	writes  atomic.Bool    // the next Reconcile writes
	wrote   chan error
}

func (s *succession) heir(ctx context.Context, cfg *rest.Config, namespace, other string, number int) (*heir, error) {
	h := &heir{ended: make(chan error, 1), first: make(chan time.Time, 1), wrote: make(chan error, 1)}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	all := cache.New(c, cache.Options{})
	elector, err := leaderelection.New(c.Config(), leaderelection.Options{Lease: "operator", Namespace: namespace, Identity: "heir" + strconv.Itoa(number)})
	if err != nil {
		return nil, err
	}
	maps := cache.ForScope[*corev1.ConfigMap](all, s.scope(namespace, other))
	writer := client.For[*corev1.ConfigMap](c)
	var once sync.Once
	h.control = controller.New("takeover", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		once.Do(func() { h.first <- time.Now() })
		if h.writes.CompareAndSwap(true, false) {
			h.wrote <- s.write(ctx, writer, namespace, other, number+1)
		}
		return controller.Result{}, nil
	}), controller.Options{})
	h.control.Watch(source.Kind(maps, handler.Self()))
	ctx, h.stop = context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = all.Run(alive) })
	running.Go(func() { _ = h.control.Warm(alive) })
	go func() {
		defer c.Close()
		<-h.control.Synced()
		err := elector.Run(ctx, func(take, work context.Context) error {
			h.led = time.Now()
			return h.control.Lead(take, work)
		})
		end()
		running.Wait()
		h.ended <- err
	}()
	return h, nil
}
