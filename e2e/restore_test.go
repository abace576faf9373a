// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"log/slog"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// S2, S9, C6: etcd is restored from a backup. A controller copies each ConfigMap with a label into
// a Secret. In the end its caches and Secrets are right, and one line of the log names the cause.
var _ = It("The API server is restored from a backup", func(ctx SpecContext) {
	own, err := envtest.Start(ctx, envtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(own.Stop()).To(Succeed()) })
	direct, err := client.New(own.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(direct.Close)
	maps := client.For[*corev1.ConfigMap](direct)
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"copy": "yes"}}
	}
	put := func(name, data string) {
		GinkgoHelper()
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"data": data}})
		Expect(err).NotTo(HaveOccurred())
	}

	lines := &testkit.Buffer{}
	restored := make(chan hook.Restored, 10)
	mgr := manager.New(own.Config(), manager.Options{
		Name: "copier", Logger: slog.New(slog.NewTextHandler(lines, nil)),
		Cache: cache.Options{QuietLimit: 20 * time.Second, Hook: hook.On(func(r *hook.Restored) { restored <- *r })},
	})
	cachedMaps, cachedSecrets := cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache())
	written := client.For[*corev1.Secret](mgr.Client())
	c := controller.New("copier", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		m, err := cachedMaps.Get(ctx, key)
		if client.IgnoreNotFound(err) != nil {
			return controller.Result{}, err
		}
		copied, missing := cachedSecrets.Get(ctx, key)
		switch {
		case m == nil || m.Labels["copy"] == "":
			if missing != nil || copied.Labels["copy"] == "" {
				return controller.Result{}, client.IgnoreNotFound(missing)
			}
			return controller.Result{}, client.IgnoreNotFound(written.Delete(ctx, key))
		case missing != nil && client.IgnoreNotFound(missing) == nil:
			_, err = written.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: m.Labels}, StringData: m.Data})
		case missing != nil:
			err = missing
		case string(copied.Data["data"]) != m.Data["data"]:
			_, err = written.Update(ctx, &corev1.Secret{ObjectMeta: copied.ObjectMeta, StringData: m.Data})
		}
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(cachedMaps, handler.Self()))
	c.Watch(source.Kind(cachedSecrets, handler.Self()))
	mgr.Add(c)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Run(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
	})
	clientset, err := kubernetes.NewForConfigAndClient(direct.Config(), direct.HTTPClient())
	Expect(err).NotTo(HaveOccurred())
	copies := func(g Gomega) map[string]string {
		list, err := clientset.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{LabelSelector: "copy=yes"})
		g.Expect(err).NotTo(HaveOccurred())
		all := map[string]string{}
		for _, s := range list.Items {
			all[s.Name] = string(s.Data["data"])
		}
		return all
	}

	put("changed", "old")
	put("deleted", "old")
	Eventually(copies).WithTimeout(patience).Should(HaveLen(2))
	backup, err := own.Backup(ctx)
	Expect(err).NotTo(HaveOccurred())
	put("created", "new")
	Expect(maps.Delete(ctx, types.NamespacedName{Namespace: "default", Name: "deleted"})).To(Succeed())
	_, err = maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: named("changed"), Data: map[string]string{"data": "new"}})
	Expect(err).NotTo(HaveOccurred())
	Eventually(copies).WithTimeout(patience).Should(Equal(map[string]string{"changed": "new", "created": "new"}))
	Expect(own.Restore(ctx, backup)).To(Succeed())

	want := map[string]string{"changed": "old", "deleted": "old"}
	Eventually(restored).WithTimeout(patience).Should(Receive())
	Eventually(func(g Gomega) {
		for _, h := range []*cache.Handle[*corev1.ConfigMap]{cachedMaps} {
			g.Expect(h.Stale()).NotTo(HaveOccurred())
		}
		g.Expect(cachedSecrets.Stale()).NotTo(HaveOccurred())
		list, err := cachedMaps.List(ctx, cache.ListOptions{Namespace: "default"})
		g.Expect(err).NotTo(HaveOccurred())
		has := map[string]string{}
		for _, m := range list {
			if m.Labels["copy"] != "" {
				has[m.Name] = m.Data["data"]
			}
		}
		g.Expect(has).To(Equal(want))
		g.Expect(copies(g)).To(Equal(want))
	}).WithTimeout(patience).Should(Succeed())
	put("later", "x")
	want["later"] = "x"
	Eventually(copies).WithTimeout(patience).Should(Equal(want))
	Expect(restored).NotTo(Receive())
	Expect(strings.Count(lines.String(), "all kinds are listed again")).To(Equal(1), lines.String())
}, NodeTimeout(5*time.Minute))
