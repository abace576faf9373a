// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

var shardSeeds = flag.Int("shard-seeds", 3, "the number of random runs in TestShards, for each late kind")

const (
	first      = "first" // the label of an owner with the number of its first child
	shardOwner = 12      // owners
	siblings   = 3       // children of each owner
)

// fleet is a group of replicas. An owner wants the ConfigMaps OWNER-N, OWNER-(N+1) and OWNER-(N+2),
// with the value N. N only grows, so no name is wanted again.
type fleet struct {
	*rand.Rand

	t       *testing.T
	api     *sim.Server
	first   [shardOwner]int
	members []*member
	born    int

	mu      sync.Mutex // guards what follows
	history []watch.Event
}

// member is a replica.
type member struct {
	cfg  *rest.Config
	stop func()
	lags []*fault.Fault
}

func newFleet(t *testing.T, seed uint64) *fleet {
	f := &fleet{Rand: rand.New(rand.NewPCG(seed, 2)), t: t, api: sim.New(t, scheme.Scheme)}
	witness, err := kubernetes.NewForConfig(f.api.Config())
	testkit.NoError(t, err)
	maps, err := witness.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	testkit.NoError(t, err)
	accounts, err := witness.CoreV1().ServiceAccounts("default").Watch(t.Context(), metav1.ListOptions{})
	testkit.NoError(t, err)
	var running sync.WaitGroup
	for _, w := range []watch.Interface{maps, accounts} {
		running.Go(func() {
			for e := range w.ResultChan() {
				f.mu.Lock()
				f.history = append(f.history, e)
				f.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		maps.Stop()
		accounts.Stop()
		running.Wait()
	})
	for i := range f.first {
		f.grow(i)
	}
	return f
}

func ownerName(i int) string { return fmt.Sprint("o", i) }

// grow changes what an owner wants.
func (f *fleet) grow(i int) {
	f.first[i]++
	f.api.Put(owners, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: ownerName(i), Labels: map[string]string{first: strconv.Itoa(f.first[i])},
	}})
}

// join starts a replica.
func (f *fleet) join() {
	f.born++
	m := &member{cfg: f.api.Config()}
	mgr := manager.New(m.cfg, manager.Options{
		Name: "family", Scheme: scheme.Scheme, Logger: slog.New(slog.DiscardHandler),
		LeaderElection: &shard.Options{
			Election: leaderelection.Options{Namespace: "default", Lease: "family", Identity: fmt.Sprint("m", f.born)},
			Settle:   time.Second,
		},
	})
	all, configMaps := cache.For[*corev1.ServiceAccount](mgr.Cache()), cache.For[*corev1.ConfigMap](mgr.Cache())
	set, err := children.New(all, mgr.Client(), children.Of(configMaps))
	testkit.NoError(f.t, err)
	c := controller.New("family", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		owner, err := all.Get(ctx, key)
		if err != nil || owner.Labels[first] == "" {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		n, err := strconv.Atoi(owner.Labels[first])
		if err != nil {
			return controller.Result{}, err
		}
		var desired []client.ApplyConfiguration
		for i := range siblings {
			desired = append(desired, configMap(fmt.Sprintf("%s-%d", owner.Name, n+i), strconv.Itoa(n)))
		}
		_, err = set.Reconcile(ctx, owner, desired...)
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(all, handler.Self()))
	c.Watch(source.Kind(configMaps, handler.Owner(all)))
	mgr.Add(c)
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	m.stop = func() {
		cancel()
		<-done // a replica without a network returns an error
	}
	f.members = append(f.members, m)
}

// leave stops a replica. With crash, it cannot hand its slots over.
func (f *fleet) leave(m *member, crash bool) {
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
	if crash {
		f.api.Add(fault.Rule{Match: fault.Match{Config: m.cfg}, Cut: true})
		f.api.Cut(fault.Match{Config: m.cfg})
	}
	m.stop()
}

// lag delays what a replica sees of a resource.
func (f *fleet) lag(m *member, resource string, d time.Duration) {
	m.lags = append(m.lags, f.api.Add(fault.Rule{
		Match: fault.Match{Config: m.cfg, Verbs: []string{"watch"}, Resources: []string{resource}}, Lag: d,
	}))
}

func (f *fleet) heal() {
	for _, m := range f.members {
		for _, l := range m.lags {
			l.Remove()
		}
		m.lags = nil
	}
}

func (f *fleet) act(late string) {
	some := func() *member { return f.members[f.IntN(len(f.members))] }
	switch f.IntN(10) {
	case 0, 1, 2, 3, 4:
		f.grow(f.IntN(shardOwner))
	case 5:
		if len(f.members) < 4 {
			f.join()
		}
	case 6:
		if len(f.members) > 1 {
			f.leave(some(), false)
		}
	case 7:
		if len(f.members) > 1 {
			// What a crashed replica has read of the owners is not known.
			f.leave(some(), late == "configmaps")
		}
	case 8:
		f.heal()
		f.lag(some(), late, time.Duration(1+f.IntN(20))*time.Second)
	case 9:
		time.Sleep(20 * time.Second) // the Lease of a crashed replica ends
	}
	time.Sleep(time.Duration(f.IntN(2000)) * time.Millisecond)
}

// check looks at each change, and at the end.
func (f *fleet) check() {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := func(e watch.Event) int {
		n, _ := strconv.Atoi(e.Object.(metav1.Object).GetResourceVersion())
		return n
	}
	slices.SortStableFunc(f.history, func(a, b watch.Event) int { return cmp.Compare(version(a), version(b)) })
	wanted, values, creations := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range f.history {
		switch obj := e.Object.(type) {
		case *corev1.ServiceAccount:
			wanted[obj.Name], _ = strconv.Atoi(obj.Labels[first])
		case *corev1.ConfigMap:
			owner, number, _ := strings.Cut(obj.Name, "-")
			n, _ := strconv.Atoi(number)
			value, _ := strconv.Atoi(obj.Data["key"])
			switch {
			case e.Type == watch.Deleted && n >= wanted[owner]:
				f.t.Errorf("version %d: %s is deleted, and its owner wants %d and more", version(e), obj.Name, wanted[owner])
			case e.Type == watch.Added && creations[obj.Name] > 0:
				f.t.Errorf("version %d: %s is created again, and its owner wants %d and more", version(e), obj.Name, wanted[owner])
			case e.Type != watch.Deleted && value < values[obj.Name]:
				f.t.Errorf("version %d: the value of %s goes back from %d to %d", version(e), obj.Name, values[obj.Name], value)
			}
			if e.Type == watch.Added {
				creations[obj.Name]++
			}
			values[obj.Name] = value
		}
	}
	for i, n := range f.first {
		for number := range n + siblings + 1 {
			name := fmt.Sprintf("%s-%d", ownerName(i), number)
			cm := f.api.Object(sim.ConfigMaps, "default", name)
			if want := number >= n && number < n+siblings; want != (cm != nil) {
				f.t.Errorf("at the end: %s exists: %t, want %t", name, cm != nil, want)
			} else if want && values[name] != n {
				f.t.Errorf("at the end: the value of %s is %d, want %d", name, values[name], n)
			}
		}
	}
}

// TestShards: replicas join, leave and crash while what the owners want changes, and one replica
// sees a kind late. At the end, each owner has the children that it wants.
//
// No child is created twice, no wanted one is deleted, and no value goes back.
func TestShards(t *testing.T) {
	for _, late := range []string{"configmaps", "serviceaccounts"} {
		for seed := range uint64(*shardSeeds) {
			t.Run(fmt.Sprintf("late %s, seed %d", late, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, seed)
					f.join()
					f.join()
					for range 100 {
						f.act(late)
					}
					f.heal()
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					for len(f.members) > 0 {
						f.leave(f.members[0], false)
					}
					f.check()
				})
			})
		}
	}
}
