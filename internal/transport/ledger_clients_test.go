// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

// websites is what a code generator makes for a custom resource: a wrapper of gentype.
type websites struct {
	*gentype.ClientWithListAndApply[*corev1.ConfigMap, *corev1.ConfigMapList, client.ApplyConfiguration]
}

func newWebsites(t *testing.T, cfg *rest.Config, namespace string) websites {
	t.Helper()
	cfg.GroupVersion, cfg.APIPath = &corev1.SchemeGroupVersion, "/api"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.RESTClientFor(cfg)
	testkit.NoError(t, err)
	return websites{gentype.NewClientWithListAndApply[*corev1.ConfigMap, *corev1.ConfigMapList, client.ApplyConfiguration]("configmaps", r, scheme.ParameterCodec,
		namespace, func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })}
}

// Requests of all clients that come from the Client's configuration are recorded.
func TestLedgerOfEveryClient(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
	c := newClient(t, api, client.Options{})
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	}
	const created, deleted = "create configmaps ns/m stored", "delete configmaps ns/m gone"
	for name, test := range map[string]struct {
		do   func(ctx context.Context, cfg *rest.Config) error
		want []string
	}{
		"clientset": {func(ctx context.Context, cfg *rest.Config) error {
			k := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("ns")
			if _, err := k.Create(ctx, object(), metav1.CreateOptions{}); err != nil {
				return err
			}
			return k.Delete(ctx, "m", metav1.DeleteOptions{})
		}, []string{created, deleted}},
		"dynamic": {func(ctx context.Context, cfg *rest.Config) error {
			d := dynamic.NewForConfigOrDie(cfg).Resource(maps).Namespace("ns")
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "m", "finalizers": []any{"a/b"}}}}
			if _, err := d.Create(ctx, u, metav1.CreateOptions{}); err != nil {
				return err
			}
			if err := d.Delete(ctx, "m", metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := d.Patch(ctx, "m", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		}, []string{created, "delete configmaps ns/m deleting", "patch configmaps ns/m gone"}},
		"metadata": {func(ctx context.Context, cfg *rest.Config) error {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}})
			m := metadata.NewForConfigOrDie(cfg).Resource(maps).Namespace("ns")
			if _, err := m.Patch(ctx, "m", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
				return err
			}
			return m.Delete(ctx, "m", metav1.DeleteOptions{})
		}, []string{"patch configmaps ns/m stored", deleted}},
		"REST": {func(ctx context.Context, cfg *rest.Config) error {
			cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &corev1.SchemeGroupVersion, "/api", scheme.Codecs.WithoutConversion()
			r, err := rest.RESTClientFor(cfg)
			if err != nil {
				return err
			}
			if err := r.Post().Namespace("ns").Resource("configmaps").Body(object()).Do(ctx).Error(); err != nil {
				return err
			}
			return r.Delete().Namespace("ns").Resource("configmaps").Name("m").Do(ctx).Error()
		}, []string{created, deleted}},
		"generated": {func(ctx context.Context, cfg *rest.Config) error {
			w := newWebsites(t, cfg, "ns")
			m, err := w.Create(ctx, object(), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if _, err = w.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				return err
			}
			return w.Delete(ctx, "m", metav1.DeleteOptions{})
		}, []string{created, "update configmaps ns/m unchanged", deleted}},
		"discovery": {func(ctx context.Context, cfg *rest.Config) error {
			d := discovery.NewDiscoveryClientForConfigOrDie(cfg)
			_, err := d.ServerResourcesForGroupVersionWithContext(ctx, "v1")
			return err
		}, nil},
		"handle": {func(ctx context.Context, _ *rest.Config) error {
			d := client.For[*appsv1.Deployment](c)
			labels := map[string]string{"a": "b"}
			web := appsac.Deployment("d", "ns").WithSpec(appsac.DeploymentSpec().
				WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
				WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
					WithContainers(coreac.Container().WithName("c").WithImage("c:1")))))
			if _, err := d.Apply(ctx, web); err != nil {
				return err
			}
			return d.Delete(ctx, name("ns", "d"))
		}, []string{"patch deployments.apps ns/d stored", "delete deployments.apps ns/d gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := journal.New(journal.Origin{Controller: "web", Key: "ns/m", Run: "r", Delivery: 1, Term: "t"})
			testkit.NoError(t, test.do(journal.With(t.Context(), l), c.Config()))
			var got []string
			for _, w := range l.Writes() {
				got = append(got, w.String()+" "+string(w.Effect))
				if known := w.UID != "" && w.ResourceVersion != ""; !known && w.Effect != ledger.Gone {
					t.Errorf("%+v is not known", w)
				}
			}
			testkit.DeepEqual(t, got, test.want, "wrote")
			testkit.AtLeast(t, len(l.Requests()), max(1, len(test.want)))
			agents := api.Requests()
			if got := agents[len(agents)-1].Header.Get("User-Agent"); !strings.HasSuffix(got, " controller/web") || strings.Count(got, "controller/") != 1 {
				t.Errorf("the user agent is %q", got)
			}
		})
	}
}

// client-go's fakes have no transport: all works, and nothing is entered.
func TestLedgerOfFakes(t *testing.T) {
	l := journal.New(journal.Origin{})
	ctx := journal.With(t.Context(), l)
	maps := fake.NewClientset().CoreV1().ConfigMaps("ns")
	testkit.NoError(t, testkit.Err(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})))
	testkit.NoError(t, testkit.Err(maps.Get(ctx, "m", metav1.GetOptions{})))
	testkit.Len(t, l.Requests(), 0)
	testkit.DeepEqual(t, l.Writes(), []ledger.Write(nil))
}

// Wrappers around the transport are outside of the ledger. It does not count the time that they
// wait, nor the requests that they do not pass on.
func TestLedgerIsInnermost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second)
			return ok(plain).RoundTrip(r)
		})
		cfg := &rest.Config{Host: "http://x.test", Transport: slow}
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return reply{code: http.StatusForbidden}.RoundTrip(r)
				}
				time.Sleep(time.Minute)
				return rt.RoundTrip(r)
			})
		})
		c, err := client.New(cfg, client.Options{})
		testkit.NoError(t, err)
		l := journal.New(journal.Origin{})
		start := time.Now()
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://x.test"+pods+"/p", nil)
			resp, err := c.HTTPClient().Do(req)
			testkit.NoError(t, err)
			readAll(resp)
		}
		got := l.Requests()
		if !slices.Equal(says(l), []string{"update pods ns/p stored p u@7"}) || len(got) != 1 || got[0].Took != 3*time.Second || got[0].Started.Sub(start) != time.Minute {
			t.Errorf("the requests are %+v", got)
		}
	})
}
