// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
)

func TestCertificates_TheirDefaultsFollowFromTheService(t *testing.T) {
	service := types.NamespacedName{Namespace: "website-system", Name: "website-webhook"}
	o := Options{Name: "website-operator", Scheme: scheme.Scheme, Service: service}
	c := o.certificates()
	testkit.Equal(t, c.Secret.String(), "website-system/website-operator-webhook-ca")
	testkit.Equal(t, c.FieldOwner, "website-operator-certificates")
	testkit.SlicesEqual(t, c.DNSNames, []string{"website-webhook.website-system.svc"})
	o = Options{Name: "website-operator", Scheme: scheme.Scheme, URL: "https://127.0.0.1:9443"}
	if c := o.certificates(); c.Secret.Namespace != "default" || !slices.Equal(c.DNSNames, []string{"127.0.0.1"}) {
		t.Errorf("the certificates of a URL are %+v", c)
	}
	testkit.Equal(t, o.Validate(), nil)
	o.Certificates.CALifetime = time.Second
	testkit.ErrorContains(t, o.Validate(), "webhook.Options.Certificates: ", "Validate returns")
}

func TestCertificates_FilesReplaceThem(t *testing.T) {
	o := Options{Name: "website-operator", Scheme: scheme.Scheme, URL: "https://127.0.0.1:9443"}
	if w := New(o); w.Server().GetCertificate == nil || w.Check(t.Context()) == nil {
		t.Error("without files, the server has no certificate of ours, or Check passes before there is one")
	}
	for _, s := range []server.Options{{CertDir: "tls"}, {CertFile: "a", KeyFile: "b"}, {Plain: true}} {
		o.Server = s
		if w := New(o); w.Server().GetCertificate != nil || w.Check(t.Context()) != nil || w.Server().Validate() != nil {
			t.Errorf("with %+v, the server has a certificate of ours", s)
		}
	}
}
