// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// upkeep are further costs of our informers, each measured in its own process. run returns a row.
var upkeep = []struct {
	name string
	run  func(ctx context.Context, cfg *rest.Config) (string, error)
}{
	{"watches added and removed", comeAndGo},
	{"controllers on one scope", shareOne},
	{"stop while refused", stopRefused},
}

// comeAndGo adds 1,000 watches at once, waits until they are synced, and removes them. It measures
// the second of two passes: the Go runtime reuses goroutine descriptors of about 500 bytes.
func comeAndGo(ctx context.Context, cfg *rest.Config) (string, error) {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return "", err
	}
	informers := cache.New(c, cache.Options{})
	var row string
	err = runWithCache(ctx, informers, func(ctx context.Context) error {
		if _, err := addAndRemove(ctx, informers, "warm", 1000); err != nil {
			return err
		}
		goroutines, heap := settled(c, 0)
		most, err := addAndRemove(ctx, informers, "bench", 1000)
		if err != nil {
			return err
		}
		after, left := settled(c, goroutines)
		row = fmt.Sprintf("1000 watches added and removed\tgoroutines before %d, with them %d, after %d\theap before %.2f MB, after %.2f MB\t%s\t",
			goroutines, most, after, heap/1e6, left/1e6, verdict(after <= goroutines && left < heap+1e6))
		return nil
	})
	return row, err
}

func addAndRemove(ctx context.Context, c *cache.Cache, label string, n int) (goroutines int, err error) {
	var subscriptions []*cache.Subscription
	var handles []*cache.Handle[*corev1.Secret]
	for i := range n {
		h := cache.ForScope[*corev1.Secret](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{label: strconv.Itoa(i)})})
		s, err := h.Subscribe(toolscache.ResourceEventHandlerFuncs{})
		if err != nil {
			return 0, err
		}
		subscriptions, handles = append(subscriptions, s), append(handles, h)
	}
	for _, s := range subscriptions {
		if err := s.WaitForSync(ctx); err != nil {
			return 0, err
		}
	}
	goroutines = runtime.NumGoroutine()
	for i := range n {
		subscriptions[i].Close()
		handles[i].Release()
	}
	return goroutines, nil
}

// settled waits until there are at most most goroutines, or their number stops changing, and
// returns the number and the heap size. It closes idle connections.
func settled(c *client.Client, most int) (goroutines int, heap float64) {
	for quiet := 0; quiet < 40 && (goroutines == 0 || goroutines > most); quiet++ {
		c.Close()
		time.Sleep(50 * time.Millisecond)
		if n := runtime.NumGoroutine(); n != goroutines {
			goroutines, quiet = n, 0
		}
	}
	if goroutines > most && most > 0 {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	for range 3 { // two empty the sync.Pools, one more frees objects with finalizers
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return goroutines, float64(s.HeapAlloc)
}

// shareOne lets 50 controllers watch one scope, and counts the requests.
func shareOne(ctx context.Context, cfg *rest.Config) (string, error) {
	cfg = rest.CopyConfig(cfg)
	counts := &requestCounts{}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			counts.add(req)
			return rt.RoundTrip(req)
		})
	})
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return "", err
	}
	informers := cache.New(c, cache.Options{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const controllers = 50
	all := int64(controllers * namespaces)
	var n atomic.Int64
	var runs []func(context.Context) error
	for i := range controllers {
		objects := cache.For[*corev1.Namespace](informers)
		ctrl := controller.New(fmt.Sprintf("controller-%d", i), controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
			if _, err := objects.Get(ctx, k); err != nil {
				return controller.Result{}, err
			}
			if loaded(k.Name) && n.Add(1) == all {
				cancel()
			}
			return controller.Result{}, nil
		}), controller.Options{})
		ctrl.Watch(source.Kind(objects, handler.Self()))
		runs = append(runs, ctrl.Run)
	}
	if err := runWithCache(ctx, informers, runs...); err != nil {
		return "", err
	}
	lists, watches := counts.lists.Load(), counts.watches.Load()
	return fmt.Sprintf("%d controllers on one scope\t%d LIST\t%d WATCH (%d requests)\t%s\t",
		controllers, lists, watches, counts.all.Load(), verdict(lists == 1 && watches == 1 && n.Load() == all)), nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// requestCounts counts the requests for namespaces. A watch that begins with the initial list
// counts as LIST and WATCH.
type requestCounts struct{ all, lists, watches atomic.Int64 }

func (c *requestCounts) add(req *http.Request) {
	if !strings.HasSuffix(req.URL.Path, "/namespaces") {
		return
	}
	c.all.Add(1)
	q := req.URL.Query()
	watch := q.Get("watch") == "true" || q.Get("watch") == "1"
	if watch {
		c.watches.Add(1)
	}
	if !watch || q.Get("sendInitialEvents") == "true" {
		c.lists.Add(1)
	}
}

// stopRefused stops managers at several times, with and without leader election, while connections
// are refused. It reports the longest stop.
func stopRefused(ctx context.Context, _ *rest.Config) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	cfg := &rest.Config{Host: "http://" + l.Addr().String()}
	l.Close()
	var stopping sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	var failed error
	moments := []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
	for _, after := range moments {
		for _, elect := range []bool{false, true} {
			stopping.Go(func() {
				d, err := stopAfter(ctx, cfg, after, elect)
				mu.Lock()
				defer mu.Unlock()
				longest, failed = max(longest, d), errors.Join(failed, err)
			})
		}
	}
	stopping.Wait()
	return fmt.Sprintf("stop while connections are refused\tlongest of %d: %s\t\t%s\t",
		2*len(moments), longest.Round(10*time.Microsecond), verdict(longest < time.Second)), failed
}

func stopAfter(ctx context.Context, cfg *rest.Config, after time.Duration, elect bool) (time.Duration, error) {
	o := manager.Options{Name: "bench", Logger: slog.New(slog.DiscardHandler)}
	if elect {
		o.LeaderElection = &leaderelection.Options{Lease: "bench", Namespace: "default"}
	}
	mgr := manager.New(cfg, o)
	objects := cache.For[*corev1.ConfigMap](mgr.Cache())
	ctrl := controller.New("configmaps", controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
		_, err := objects.Get(ctx, k)
		return controller.Result{}, err
	}), controller.Options{})
	ctrl.Watch(source.Kind(objects, handler.Self()))
	mgr.Add(ctrl)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Run(ctx) }()
	time.Sleep(after)
	start := time.Now()
	cancel()
	err := <-ended
	return time.Since(start), err
}
