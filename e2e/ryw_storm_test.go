// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// storm has many keys, each with a ConfigMap that counts the cycles of a Secret: created, updated,
// deleted. Each Reconcile does the next step according to its caches, and makes its key due again
// immediately.
type storm struct {
	*world

	control                *controller.Controller[types.NamespacedName]
	maps                   *cache.Handle[*corev1.ConfigMap]
	secrets                *cache.Handle[*corev1.Secret]
	names                  *cache.Handle[*metav1.PartialObjectMetadata] // of the same secrets
	cycles, left           atomic.Int64
	runs, refused, expired atomic.Int64
	over                   chan struct{}

	mu   sync.Mutex // guards what follows
	last map[types.NamespacedName]*lastWrites
	odd  []string // what was read that is older
}

// lastWrites are the last writes of a key. Only its own Reconciles access them.
type lastWrites struct {
	cycle  int
	secret metav1.Object // nil: none
	gone   types.UID
}

func (s *storm) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if err := controller.Stale(ctx); err != nil {
		return controller.Result{}, err
	}
	m, err := s.maps.Get(ctx, key)
	if err != nil || m.Namespace != s.namespace {
		return controller.Result{}, unlessNotFound(err)
	}
	secret, err := s.secrets.Get(ctx, key)
	if unlessNotFound(err) != nil {
		return controller.Result{}, err
	}
	name, nameErr := s.names.Get(ctx, key)
	if unlessNotFound(nameErr) != nil {
		return controller.Result{}, nameErr
	}
	s.runs.Add(1)
	cycle, _ := strconv.Atoi(m.Data["cycle"])
	last := s.lastOf(key)
	if cycle < last.cycle {
		s.complain("%s is in cycle %d, and was in %d", key.Name, cycle, last.cycle)
	}
	if apierrors.IsNotFound(err) {
		secret = nil
	}
	s.check(key, "its secret", last, secret, err)
	s.check(key, "the metadata of its secret", last, name, nameErr)
	if cycle >= int(s.cycles.Load()) {
		return controller.Result{}, nil
	}
	err = s.step(ctx, key, last, m, secret)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		s.refused.Add(1)
	}
	if err == nil {
		s.control.Queue().Add(key)
	}
	return controller.Result{}, err
}

func unlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *storm) step(ctx context.Context, key types.NamespacedName, last *lastWrites, m *corev1.ConfigMap, secret *corev1.Secret) (err error) {
	secrets := client.For[*corev1.Secret](s.client)
	cycle, _ := strconv.Atoi(m.Data["cycle"])
	switch {
	case secret == nil:
		secret, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	case secret.Annotations["cycle"] != fmt.Sprint(cycle):
		secret.Annotations = map[string]string{"cycle": fmt.Sprint(cycle)}
		secret, err = secrets.Update(ctx, secret)
	default:
		if err := secrets.Delete(ctx, key); err != nil {
			return err
		}
		last.secret, last.gone = nil, secret.UID
		m.Data = map[string]string{"cycle": fmt.Sprint(cycle + 1)}
		if _, err := client.For[*corev1.ConfigMap](s.client).Update(ctx, m); err != nil {
			return err
		}
		if last.cycle = cycle + 1; s.left.Add(-1) == 0 {
			close(s.over)
		}
		return nil
	}
	if err == nil {
		last.secret, last.gone = secret, ""
	}
	return err
}

func (s *storm) lastOf(key types.NamespacedName) *lastWrites {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[key] == nil {
		s.last[key] = &lastWrites{}
	}
	return s.last[key]
}

func (s *storm) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = append(s.odd, fmt.Sprintf(format, args...))
}

// check compares what was read with the last writes.
func (s *storm) check(key types.NamespacedName, what string, last *lastWrites, read metav1.Object, err error) {
	number := func(o metav1.Object) int {
		n, _ := strconv.Atoi(o.GetResourceVersion())
		return n
	}
	switch {
	case err != nil && last.secret != nil:
		s.complain("%s of %s is not there, and was written at %s", what, key.Name, last.secret.GetResourceVersion())
	case err == nil && read.GetUID() == last.gone:
		s.complain("%s of %s is there, and was deleted", what, key.Name)
	case err == nil && last.secret != nil && (read.GetUID() != last.secret.GetUID() || number(read) < number(last.secret)):
		s.complain("%s of %s is at %s, and was written at %s", what, key.Name, read.GetResourceVersion(), last.secret.GetResourceVersion())
	}
}

// C6
var _ = It("Keys that write in a storm see their own writes, while watches are late, are cut, and begin with a list", func(ctx SpecContext) {
	const keys, cycles = 20, 8
	s := &storm{world: newWorld(ctx, cluster.Config()), over: make(chan struct{}), last: map[types.NamespacedName]*lastWrites{}}
	s.cycles.Store(cycles)
	s.left.Store(keys * cycles)
	for i := range keys {
		_, err := s.direct.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("key-", i)}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	s.maps, s.secrets = cache.For[*corev1.ConfigMap](s.cache), cache.For[*corev1.Secret](s.cache)
	s.names = cache.ForScope[*metav1.PartialObjectMetadata](s.cache, cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
	s.control = controller.New("storm", controller.Func[types.NamespacedName](s.reconcile), controller.Options{
		Workers: 4, Logger: slog.New(slog.DiscardHandler),
		Hook: hook.On(func(a *hook.Awaited) {
			if a.Expired {
				s.expired.Add(1)
			}
		}),
	})
	s.control.Watch(source.Kind(s.maps, handler.Self()))
	s.control.Watch(source.Kind(s.secrets, handler.Self()))
	s.control.Reads(s.names)
	watches := fault.Match{Verbs: []string{"watch"}}
	s.proxy.Add(fault.Rule{Match: watches, Lag: 100 * time.Millisecond})
	cut := s.proxy.Add(fault.Rule{Match: watches, CutAfter: 700 * time.Millisecond})
	resumed := fault.Match{Verbs: []string{"watch"}, Func: func(r *fault.Request) bool { return r.Query.Get("sendInitialEvents") == "" }}
	// more, and client-go pauses for longer and longer.
	gone := s.proxy.Add(fault.Rule{Match: resumed, Times: 2, Refuse: apierrors.NewResourceExpired("too old")})
	s.start(s.control)
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	GinkgoWriter.Printf("%d of %d cycles, %d Reconciles, %d requests refused, %d watches cut or too old, %d of them too old\n", keys*cycles-s.left.Load(), keys*cycles, s.runs.Load(), s.refused.Load(), cut.Hits(), gone.Hits())
	s.mu.Lock()
	defer s.mu.Unlock()
	Expect(s.odd).To(BeEmpty())
	Expect(s.expired.Load()).To(BeZero())
	Expect(s.left.Load()).To(BeZero())
}, NodeTimeout(patience))
