// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// copies is a program of two controllers: a Secret for each ConfigMap "in-...", and a ConfigMap
// "out-..." for each Secret. Its event handlers and one Reconcile are slow.
type copies struct {
	*world

	manager *manager.Manager
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
}

func newCopies(ctx context.Context) *copies {
	GinkgoHelper()
	c := &copies{world: newWorld(ctx, cluster.Config())}
	cfg, err := c.proxy.Config()
	Expect(err).NotTo(HaveOccurred())
	c.manager = manager.New(cfg, manager.Options{Name: "copies", Logger: slog.New(slog.DiscardHandler)})
	here := cache.Scope{Namespaces: cache.NewSet(c.namespace)}
	c.maps, c.secrets = cache.ForScope[*corev1.ConfigMap](c.manager.Cache(), here), cache.ForScope[*corev1.Secret](c.manager.Cache(), here)
	first := controller.New("first", controller.Func[types.NamespacedName](c.first), controller.Options{Workers: 8})
	first.Watch(source.Kind(c.maps, handler.Map(func(ctx context.Context, m *corev1.ConfigMap) ([]types.NamespacedName, error) {
		lapse(ctx, 4*time.Millisecond)
		if !strings.HasPrefix(m.Name, "in-") {
			return nil, nil
		}
		return []types.NamespacedName{{Namespace: m.Namespace, Name: m.Name}}, nil
	})))
	second := controller.New("second", controller.Func[types.NamespacedName](c.second), controller.Options{Workers: 8})
	second.Watch(source.Kind(c.secrets, handler.Self()))
	second.Reads(c.maps)
	c.manager.Add(first)
	c.manager.Add(second)
	c.running.Go(func() { Expect(c.manager.Run(c.ctx)).To(Succeed()) })
	return c
}

func (c *copies) first(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if key.Name == "in-059" {
		lapse(ctx, time.Second)
	}
	m, err := c.maps.Get(ctx, key)
	secrets := client.For[*corev1.Secret](c.manager.Client())
	if apierrors.IsNotFound(err) {
		return controller.Result{}, ignoreNotFound(secrets.Delete(ctx, key))
	} else if err != nil {
		return controller.Result{}, err
	}
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string][]byte{"value": []byte(m.Data["value"])}}
	if _, err = secrets.Create(ctx, want); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, want)
	}
	return controller.Result{}, err
}

func (c *copies) second(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	maps := client.For[*corev1.ConfigMap](c.manager.Client())
	out := types.NamespacedName{Namespace: key.Namespace, Name: "out-" + key.Name}
	s, err := c.secrets.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, ignoreNotFound(maps.Delete(ctx, out))
	} else if err != nil {
		return controller.Result{}, err
	}
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: out.Namespace, Name: out.Name}, Data: map[string]string{"value": string(s.Data["value"])}}
	now, err := c.maps.Get(ctx, out)
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, want)
	case err == nil:
		want.ResourceVersion = now.ResourceVersion // a stale one is a conflict, and tried again
		_, err = maps.Update(ctx, want)
	}
	return controller.Result{}, err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// each calls f for n objects, several concurrently.
func each(n int, do func(name string) error) {
	GinkgoHelper()
	errs := make(chan error, n)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				errs <- do(fmt.Sprintf("in-%03d", i))
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}

// expect checks once.
func (c *copies) expect(ctx context.Context, from, n int, value string) {
	GinkgoHelper()
	Expect(c.manager.Idle(ctx)).To(Succeed())
	list, err := c.direct.CoreV1().ConfigMaps(c.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	got, want := map[string]string{}, map[string]string{}
	for _, m := range list.Items {
		if strings.HasPrefix(m.Name, "out-") {
			got[m.Name] = m.Data["value"]
		}
	}
	for i := from; i < n; i++ {
		want[fmt.Sprintf("out-in-%03d", i)] = value
	}
	Expect(got).To(Equal(want))
}

// allWatches matches every watch.
var allWatches = fault.Match{Verbs: []string{"watch"}}

var _ = Describe("M7: Idle", func() {
	DescribeTable("returns when all work is done, so that one check is enough", func(ctx SpecContext, trouble func(p *fault.Proxy)) {
		const n = 60
		c := newCopies(ctx)
		trouble(c.proxy)
		direct := c.direct.CoreV1().ConfigMaps(c.namespace)
		object := func(name, value string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
		}
		c.expect(ctx, 0, 0, "")
		each(n, func(name string) error {
			_, err := direct.Create(ctx, object(name, "one"), metav1.CreateOptions{})
			return err
		})
		c.expect(ctx, 0, n, "one")
		each(n, func(name string) error {
			_, err := direct.Update(ctx, object(name, "two"), metav1.UpdateOptions{})
			return err
		})
		c.expect(ctx, 0, n, "two")
		each(n/2, func(name string) error { return direct.Delete(ctx, name, metav1.DeleteOptions{}) })
		c.expect(ctx, n/2, n, "two")
	},
		Entry("as things are", SpecTimeout(patience), func(*fault.Proxy) {}),
		Entry("while watches lag", SpecTimeout(patience), func(p *fault.Proxy) { p.Add(fault.Rule{Match: allWatches, Lag: 300 * time.Millisecond}) }),
		Entry("while watches lag and break", SpecTimeout(patience), func(p *fault.Proxy) {
			p.Add(fault.Rule{Match: allWatches, Lag: 100 * time.Millisecond, CutAfter: 900 * time.Millisecond})
		}),
		Entry("while answers are late", SpecTimeout(patience), func(p *fault.Proxy) {
			p.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create", "update", "list"}}, Lag: 50 * time.Millisecond})
		}))

	It("lists page by page", SpecTimeout(patience), func(ctx SpecContext) {
		const n = 1100
		w := newWorld(ctx, cluster.Config())
		maps := cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Namespaces: cache.NewSet(w.namespace)})
		w.start()
		pages := w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"list"}, Resources: []string{"configmaps"},
			Func: func(r *fault.Request) bool { return r.Query.Get("limit") == "500" }}})
		w.proxy.Add(fault.Rule{Match: allWatches, Lag: time.Second})
		each(n, func(name string) error {
			_, err := w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
		Expect(maps.CatchUp(ctx)).To(Succeed())
		list, err := maps.List(ctx, cache.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(len(list)).To(BeNumerically(">=", n))
		Expect(pages.Hits()).To(BeNumerically(">=", 3))
	})
})
