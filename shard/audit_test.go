// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// plan is what an operator's replica does otherwise than others.
type plan struct {
	by      shard.By
	labels  labels.Selector // of the objects in its cache
	without string          // the controller that is not started
	idle    string          // the controller whose workers are not started
}

// operate starts a replica with the controllers "web" and "dns" of ConfigMaps.
func (f *fleet) operate(name string, p plan) *replica {
	f.t.Helper()
	r := &replica{name: name, done: make(chan error, 1)}
	cfg := f.api.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, r} })
	e := election()
	e.Identity = name
	var err error
	if r.Group, err = shard.New(cfg, e, shard.Options{By: p.by}); err != nil {
		f.t.Fatal(err)
	}
	cl, err := client.New(cfg, client.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	objects := cache.New(cl, cache.Options{})
	all := p.controllers(r.Group, cache.ForScope[*corev1.ConfigMap](objects, cache.Scope{Labels: p.labels}))
	ctx, stop := context.WithCancel(f.t.Context())
	r.stop = stop
	f.all = append(f.all, r)
	go func() {
		err := f.lead(ctx, r, p, objects, all)
		r.over.Store(true)
		r.done <- err
	}()
	return r
}

type configMaps = controller.Controller[types.NamespacedName]

func (p plan) controllers(g *shard.Group, maps *cache.Handle[*corev1.ConfigMap]) (all []*configMaps) {
	for _, of := range []string{"web", "dns"} {
		if of == p.without {
			continue
		}
		c := controller.New(of, controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{Shards: g, Logger: slog.New(slog.DiscardHandler)})
		c.Watch(source.Kind(maps, handler.Self()))
		all = append(all, c)
	}
	return all
}

// lead runs the controllers of a replica.
func (f *fleet) lead(ctx context.Context, r *replica, p plan, objects *cache.Cache, all []*configMaps) error {
	warm, cool := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cool()
	running.Go(func() { f.ok(objects.Run(warm)) })
	for _, c := range all {
		f.ok(c.Validate())
		running.Go(func() { f.ok(c.Warm(warm)) })
	}
	return r.Run(ctx, func(take, work context.Context) error {
		var leading sync.WaitGroup
		for _, c := range all {
			if c.Name() != p.idle {
				leading.Go(func() { f.ok(c.Lead(take, work)) })
			}
		}
		leading.Wait()
		<-take.Done()
		return nil
	})
}

func (f *fleet) ok(err error) {
	if err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) put(name string, labels map[string]string) {
	f.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}})
}

// found lets time pass until a replica reports each of the texts, and returns how long it took.
func (f *fleet) found(limit time.Duration, r *replica, texts ...string) time.Duration {
	f.t.Helper()
	return f.passUntil(r.name+" finds "+strings.Join(texts, ", "), limit, func(map[string]int) bool {
		all := strings.Join(r.Status().Audit.Findings, "\n")
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return false
			}
		}
		return true
	})
}

// TestP2_AHealthyFleetHasNoFindings, although objects come and go, watches lag, and slots move.
func TestP2_AHealthyFleetHasNoFindings(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute with the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for i := range 100 {
			f.put(fmt.Sprint("at-start-", i), nil)
		}
		f.api.Lag(300 * time.Millisecond)
		a := f.operate("a", plan{})
		f.operate("b", plan{})
		f.operate("c", plan{})
		random := rand.New(rand.NewPCG(1, 2))
		var d *replica
		for at := range 2000 { // 10 minutes
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			if name := fmt.Sprint("churn-", random.IntN(30)); !f.api.Remove(sim.ConfigMaps, "default", name) {
				f.put(name, nil)
			}
			switch at {
			case 300:
				d = f.operate("d", plan{})
			case 600:
				d.stop()
			case 900:
				a.cut.Store(true)
			case 1100:
				a.cut.Store(false)
			case 1400:
				f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":"{}"}}}`)
			}
			f.judge()
			for _, r := range f.all {
				if found := r.Status().Audit.Findings; len(found) > 0 {
					t.Fatalf("%s after %d steps: %s", r.name, at, found)
				}
			}
		}
		for _, r := range f.all[:3] {
			if s := r.Status().Audit; s.Keys != 32 || s.Members != 2 {
				t.Errorf("%s has compared %d keys with %d members, want 32 with 2", r.name, s.Keys, s.Members)
			}
		}
	})
}

// TestP2_TwoHashFunctionsUnderOneName: two releases with other functions both report it.
func TestP2_TwoHashFunctionsUnderOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for i := range 40 {
			f.put(fmt.Sprint("o", i), nil)
		}
		a := f.operate("a", plan{by: shard.ByFunc("f", func(k types.NamespacedName) string { return k.Name })})
		b := f.operate("b", plan{by: shard.ByFunc("f", func(k types.NamespacedName) string { return k.Name + "2" })})
		const text = "and this member compute different slots of"
		took := f.found(time.Minute, a, "controller web: ", "controller dns: ", text) + f.found(10*time.Second, b, "controller web: ", text)
		t.Logf("found after %s: %s", took, strings.Join(a.Status().Audit.Findings, "\n"))
	})
}

// TestP2_ACacheWithoutAnObject: the owner and the other members report it, and all report no more
// when the cache has it.
func TestP2_ACacheWithoutAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for i := range 40 {
			f.put(fmt.Sprint("o", i), map[string]string{"hidden": ""})
		}
		seen, err := labels.Parse("!hidden")
		f.ok(err)
		a, b := f.operate("a", plan{}), f.operate("b", plan{labels: seen})
		f.passUntil("two members", time.Minute, even(2, 256))
		took := f.found(10*time.Minute, a, "and its cache does not have the object") + f.found(10*time.Second, b, "this member owns")
		t.Logf("found after %s: %s; %s", took, a.Status().Audit.Findings, b.Status().Audit.Findings)
		for i := range 40 {
			f.put(fmt.Sprint("o", i), nil)
		}
		f.passUntil("no findings", time.Minute, func(map[string]int) bool {
			return len(a.Status().Audit.Findings)+len(b.Status().Audit.Findings) == 0
		})
	})
}

// TestP2_NoMemberOrTwoReconcileAKey: all members report it.
func TestP2_NoMemberOrTwoReconcileAKey(t *testing.T) {
	for text, serves := range map[string]bool{"and does not reconcile it": false, ", also by web-": true} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				a, b := f.start("a", shard.Options{}), f.start("b", shard.Options{})
				f.passUntil("two members", time.Minute, even(2, 256))
				for range 4 {
					for _, r := range f.all {
						census := owned.NewCensus(r.Owned().From(), func(owned.Slot) bool { return serves })
						census.Add(types.NamespacedName{Namespace: "default", Name: "o"}, "uid", 7)
						r.Owned().PutCensus("web", census)
					}
					f.pass(10 * time.Second)
				}
				f.found(time.Second, a, "default/o", text)
				f.found(time.Second, b, "default/o", text)
			})
		})
	}
}

// TestP2_AControllerIsMissingOnAMember, or its workers do not run: all members report it.
func TestP2_AControllerIsMissingOnAMember(t *testing.T) {
	for name, p := range map[string]plan{"not added": {without: "dns"}, "not started": {idle: "dns"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				f.put("o", nil)
				a, b, c := f.operate("a", plan{}), f.operate("b", p), f.operate("c", plan{})
				f.passUntil("three members", time.Minute, even(3, 256))
				for _, r := range []*replica{a, b, c} {
					f.found(time.Minute, r, "controller dns: it has no workers on web-")
					if len(r.Status().Audit.Findings) != 1 {
						t.Errorf("%s: %s", r.name, r.Status().Audit.Findings)
					}
				}
				b.stop()
				f.passUntil("no findings", time.Minute, func(map[string]int) bool {
					return len(a.Status().Audit.Findings)+len(c.Status().Audit.Findings) == 0
				})
			})
		})
	}
}
