// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/webhook"
	"github.com/setpoint-dev/setpoint/webhook/webhooktest"
)

var _ = Describe("The webhooks on a real API server", func() {
	It("set defaults, validate and convert", func(ctx SpecContext) {
		namespace, err := cluster.Namespace(ctx, "webhooks")
		Expect(err).NotTo(HaveOccurred())
		expectWebhooks(ctx, NewWithT(GinkgoT()), admin, namespace)
	})
})

// The same on the sim, in memory.
func TestWebhooks_OnTheSim(t *testing.T) {
	scheme, err := operator.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	hooks := newWebhooks(t)
	server := sim.New(t, scheme)
	server.UseWebhooks(hooks.Handler(nil))
	_, ca, err := envtest.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"../config/crd/web.example.com_websites.yaml", "../config/webhook/manifests.yaml"}
	if _, err := envtest.InstallWebhooks(t.Context(), server.Config(), envtest.Webhooks{Paths: paths, Address: "operator.test:443", CABundle: ca}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expectWebhooks(t.Context(), NewWithT(t), c, "default")
}

// expectWebhooks uses the webhooks as a client does.
func expectWebhooks(ctx context.Context, g Gomega, c *client.Client, namespace string) {
	sites := client.For[*v1.Website](c)
	site, err := sites.Create(ctx, siteIn(namespace, 1, "<h1>Hello</h1>"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(site.Spec.Host).To(Equal("hello." + namespace + ".svc"))

	bad := siteIn(namespace, 1, "<SCRIPT>")
	bad.Name, bad.Spec.Host = "bad", "-"
	_, err = sites.Create(ctx, bad)
	g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(And(ContainSubstring("spec.host: Invalid value"), ContainSubstring("spec.page.content: Forbidden"))))

	first := client.For[*v1alpha1.Website](c)
	old, err := first.GetLive(ctx, key(site))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(old.Spec.Content).To(Equal("<h1>Hello</h1>"))
	old.Spec.Content = "<script>"
	_, err = first.Update(ctx, old)
	g.Expect(err).To(MatchError(ContainSubstring("spec.page.content: Forbidden")), "the API server converts to v1 for the webhook")
	old.Spec.Content = "<h1>Bye</h1>"
	_, err = first.Update(ctx, old)
	g.Expect(err).NotTo(HaveOccurred())
	site, err = sites.GetLive(ctx, key(site))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(site.Spec).To(HaveField("Page.Content", "<h1>Bye</h1>"))
	g.Expect(site.Spec.Host).To(Equal("hello."+namespace+".svc"), "v1alpha1 has no host, but keeps it")
	g.Expect(site.Annotations).To(BeEmpty())
	g.Expect(sites.Delete(ctx, key(site))).To(Succeed())
}

func newWebhooks(t *testing.T) *webhook.Webhooks {
	t.Helper()
	hooks, err := operator.Webhooks(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return hooks
}

func TestConversion_LosesNothing(t *testing.T) {
	webhooktest.RoundTrip(t, newWebhooks(t), webhooktest.Options{})
}
