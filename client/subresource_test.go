// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingac "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// scaling serves the scale of deployments, which is always 3, and remembers what is sent there.
func scaling(t *testing.T) (c *client.Client, sent *[]string) {
	t.Helper()
	api, sent := sim.NewServer(sim.Deployments), new([]string)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		switch {
		case r.Verb == "discover":
			return r.Send(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
				{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["get"]},
				{"name":"deployments/scale","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]},
				{"name":"deployments/evict","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}]}`)
		case r.Name == "missing":
			return r.FailWith(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "missing"}})
		case r.Subresource == "evict":
			return r.Send(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		case r.Subresource == "scale":
			return r.Send(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"namespace":"default","name":"web"},"spec":{"replicas":3},"status":{"replicas":2}}`)
		}
		return nil, nil
	})
	cfg := api.Config()
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Body != nil {
				data, _ := io.ReadAll(r.Body)
				if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
					obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
					if err != nil {
						return nil, err
					}
					data, _ = json.Marshal(obj)
				}
				*sent = append(*sent, r.Method+" "+r.URL.RequestURI()+" "+string(data))
			}
			return rt.RoundTrip(r)
		})
	}
	c, err := client.New(cfg, client.Options{FieldOwner: "me"})
	testkit.NoError(t, err)
	return c, sent
}

func TestSubresource(t *testing.T) {
	c, sent := scaling(t)
	ctx, deployments, key := t.Context(), client.For[*appsv1.Deployment](c), name("default", "web")
	scales := client.SubresourceOf[*autoscalingv1.Scale](deployments, "scale")
	three := func(s *autoscalingv1.Scale, err error) *autoscalingv1.Scale {
		t.Helper()
		if err != nil || s.Spec.Replicas != 3 || s.Status.Replicas != 2 || s.Name != "web" {
			t.Fatal(s, err)
		}
		return s
	}
	s := three(scales.Get(ctx, key))
	s.Spec.Replicas = 5
	three(scales.Update(ctx, s, client.DryRun()))
	three(scales.Patch(ctx, key, types.MergePatchType, []byte(`{"spec":{"replicas":6}}`)))
	three(scales.Apply(ctx, autoscalingac.Scale().WithName("web").WithNamespace("default").WithSpec(autoscalingac.ScaleSpec().WithReplicas(7))))
	e, err := client.SubresourceOf[*policyv1.Eviction](deployments, "evict").Create(ctx, key, &policyv1.Eviction{})
	testkit.Equal(t, err, nil)
	testkit.DeepEqual(t, e, &policyv1.Eviction{})
	u, err := client.SubresourceOf[*unstructured.Unstructured](deployments, "scale").Get(ctx, key)
	testkit.NoError(t, err)
	testkit.Equal(t, u.GetKind(), "Scale")
	const path = "/apis/apps/v1/namespaces/default/deployments/web/"
	for i, want := range []string{
		"PUT " + path + `scale?dryRun=All&fieldManager=me {"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"default"},"spec":{"replicas":5},"status":{"replicas":2}}`,
		"PATCH " + path + `scale?fieldManager=me {"spec":{"replicas":6}}`,
		"PATCH " + path + `scale?fieldManager=me&force=true {"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"default"},"spec":{"replicas":7}}`,
		"POST " + path + `evict?fieldManager=me {"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web","namespace":"default"}}`,
	} {
		testkit.Equal(t, (*sent)[i], want)
	}
}

func TestSubresourceMistakes(t *testing.T) {
	c, sent := scaling(t)
	ctx, deployments, key := t.Context(), client.For[*appsv1.Deployment](c), name("default", "web")
	scales := client.SubresourceOf[*autoscalingv1.Scale](deployments, "scale")
	named := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}
	for _, e := range []struct {
		err  error
		want []string
	}{
		{second(scales.Get(ctx, name("default", ""))), []string{"get the scale of Deployment", "name is empty"}},
		{second(scales.Get(ctx, name("", "web"))), []string{"name the namespace"}},
		{second(scales.Update(ctx, nil)), []string{"update the scale of Deployment", "nil"}},
		{second(scales.Create(ctx, key, named)), []string{"create the scale of Deployment default/web", "the object is called default/other"}},
		{second(scales.Update(ctx, named, client.GracePeriod(0))), []string{"this call does not take client.GracePeriod"}},
		{second(scales.Apply(ctx, appsac.Deployment("web", "default"))), []string{"of a Deployment, not of a Scale"}},
		{second(scales.Apply(ctx, autoscalingac.Scale().WithName("web"), client.UnlessAlready(nil))), []string{"client.UnlessAlready is for Handle.Apply"}},
		{second(client.SubresourceOf[*autoscalingv1.Scale](deployments, "size").Get(ctx, key)), []string{"does not serve the size of Deployment of apps/v1", "check the name"}},
		{second(client.SubresourceOf[*appsv1.Deployment](deployments, "scale").Get(ctx, key)), []string{"the scale of Deployment is a Scale of autoscaling/v1, not a Deployment of apps/v1"}},
		{second(client.SubresourceOf[*widget](deployments, "scale").Get(ctx, key)), []string{"client.SubresourceOf[*client_test.widget]", "AddToScheme"}},
		{second(client.SubresourceOf[*autoscalingv1.Scale](deployments, "").Get(ctx, key)), []string{"client.SubresourceOf", "the name is empty"}},
		{second(client.SubresourceOf[*autoscalingv1.Scale](client.For[*corev1.Pod](nil), "scale").Get(ctx, key)), []string{"client.For[*v1.Pod]", "nil"}},
	} {
		wants(t, e.err, e.want...)
	}
	testkit.Len(t, *sent, 0)
	testkit.ErrorSatisfies(t, testkit.Err(scales.Get(ctx, name("default", "missing"))), apierrors.IsNotFound)
}

// TestSubresourceLater shows that a subresource that a CRD is given later is found.
func TestSubresourceLater(t *testing.T) {
	api, scaled := sim.NewServer(sim.Deployments), false
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		switch {
		case r.Verb == "discover":
			scale := ""
			if scaled {
				scale = `,{"name":"deployments/scale","kind":"Scale","group":"autoscaling","version":"v1"}`
			}
			return r.Send(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
				{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["get"]}` + scale + `]}`)
		case r.Subresource == "scale":
			return r.Send(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"namespace":"default","name":"web"}}`)
		}
		return nil, nil
	})
	ctx, key := t.Context(), name("default", "web")
	scales := client.SubresourceOf[*autoscalingv1.Scale](client.For[*appsv1.Deployment](newClient(t, api, client.Options{})), "scale")
	_, err := scales.Get(ctx, key)
	wants(t, err, "does not serve the scale of Deployment")
	scaled = true
	testkit.Equal(t, testkit.Must(scales.Get(ctx, key)).Name, "web")
}
