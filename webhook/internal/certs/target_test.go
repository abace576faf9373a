// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// pinned is a bundle in the manifests of a tool, as base64.
const pinned = "cGlubmVk"

func TestBundle_AResetIsRestoredAndNamesTheFieldManager(t *testing.T) {
	for _, target := range targets {
		t.Run(string(target.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for range 3 {
					w.start(options())
				}
				w.pass(2 * time.Minute)
				before := w.bundle(target)
				w.reset(target, pinned)
				time.Sleep(time.Second)
				synctest.Wait()
				testkit.Equal(t, w.bundle(target), before, "the bundle is not restored")
				const sentence = "the field manager \"the-tool\" reset the caBundle; it is restored"
				time.Sleep(time.Minute)
				testkit.Count(t, w.events(), sentence, 1)
				testkit.Count(t, w.logs.String(), "restored a caBundle that another client reset", 1)
				testkit.Contains(t, w.logs.String(), "manager=the-tool")
			})
		})
	}
}

// TestBundle_ARemovalHasNoFieldManager removes the field. The field manager leaves
// no trace.
func TestBundle_ARemovalHasNoFieldManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(options())
		w.pass(2 * time.Minute)
		w.reset(targets[0], "")
		time.Sleep(time.Minute)
		testkit.Contains(t, w.events(), "an unknown field manager reset the caBundle; it is restored", "the events")
	})
}

func TestBundle_AFightSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(options())
		w.pass(2 * time.Minute)
		resets := 0
		for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			synctest.Wait()
			if strings.Contains(w.bundle(targets[0]), "BEGIN") {
				w.reset(targets[0], pinned)
				resets++
			}
		}
		// a few at once, then with a delay of up to 5 minutes
		testkit.Between(t, resets, 8, 20)
		testkit.Contains(t, w.logs.String(), "remove caBundle from the manifests that the-tool applies", "the log has no remedy")
	})
}

func TestBundle_TargetsOfOtherToolsAreNotWritten(t *testing.T) {
	for name, marker := range map[string]struct{ annotation, label, value, sentence string }{
		"cert-manager": {annotation: "cert-manager.io/inject-ca-from", value: "ns/name", sentence: "belongs to cert-manager (annotation cert-manager.io/inject-ca-from)"},
		"of a secret":  {annotation: "cert-manager.io/inject-ca-from-secret", value: "ns/name", sentence: "belongs to cert-manager (annotation cert-manager.io/inject-ca-from-secret)"},
		"service-ca":   {annotation: "service.beta.openshift.io/inject-cabundle", value: "true", sentence: "belongs to OpenShift's service-ca"},
		"OLM":          {label: "olm.owner", value: "website.v1", sentence: "belongs to the Operator Lifecycle Manager (label olm.owner)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := configuration()
				c.Annotations, c.Labels = map[string]string{marker.annotation: marker.value}, map[string]string{marker.label: marker.value}
				delete(c.Annotations, "")
				delete(c.Labels, "")
				w := newWorld(t, c, definition())
				r := w.start(options())
				time.Sleep(time.Hour)
				testkit.NotContains(t, fmt.Sprint(w.object(targets[0]).Object), "caBundle", "its bundle was written")
				testkit.ErrorContains(t, r.Check(t.Context()), marker.sentence, "Check does not describe it")
				testkit.Count(t, w.logs.String(), marker.sentence, 1)
			})
		})
	}
}

func TestCheck_NamesWhatIsNotInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, configuration())
		testkit.Equal(t, fmt.Sprint(testkit.Err(New(options()).GetCertificate(nil))), "webhook: there is no certificate yet; /readyz?verbose has the reason")
		r := w.start(options())
		time.Sleep(time.Minute)
		want := "CustomResourceDefinition websites.web.example.com does not exist; apply the manifests of the webhooks"
		testkit.Equal(t, fmt.Sprint(r.Check(t.Context())), want, "Check returns")
		testkit.NoError(t, testkit.Err(client.ForKind[*unstructured.Unstructured](w.api, CustomResourceDefinition.gvk()).Create(term.Without(t.Context()), definition())))
		time.Sleep(time.Minute)
		testkit.Equal(t, r.Check(t.Context()), nil, "Check fails with all bundles in place")
	})
}

func TestHooks_CertificateIsCalledForEachCAAndLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var cas, leaves []hook.WebhookCertificate
		w.hooks = hook.On(func(c *hook.WebhookCertificate) {
			if c.CA {
				cas = append(cas, *c)
			} else {
				leaves = append(leaves, *c)
			}
		})
		r := w.start(options())
		w.pass(18 * time.Minute)
		r.stop()
		if len(cas) != 2 || len(leaves) != 5 { // after 0, 5, 10, 15 minutes and with the second CA
			t.Errorf("%d CAs and %d leaves in 18 minutes", len(cas), len(leaves))
		}
	})
}

func TestOptions_ValidateNamesWrongFields(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"Secret is ":                   func(o *Options) { o.Secret.Namespace = "" },
		"DNSNames is empty":            func(o *Options) { o.DNSNames = nil },
		"DNSNames: \"a_b\" is neither": func(o *Options) { o.DNSNames = []string{"a_b"} },
		"Skew is -1s":                  func(o *Options) { o.Skew = -time.Second },
		"LeafLifetime: 31m0s is longer than CALifetime":   func(o *Options) { o.LeafLifetime = 31 * time.Minute },
		"LeafLifetime: 10m0s is too short for a Skew":     func(o *Options) { o.Skew = 3 * time.Minute },
		"CALifetime: 30m0s is too short; a rotation has ": func(o *Options) { o.Propagation = 15 * time.Minute },
		"LeafLifetime: 1s is too short":                   func(o *Options) { o.LeafLifetime, o.Skew = time.Second, time.Millisecond },
	} {
		o := options()
		change(&o)
		testkit.ErrorContains(t, o.Validate(), want, "Validate returns")
		testkit.ErrorContains(t, New(o).Run(t.Context(), nil, nil, nil), want, "Run returns")
	}
	testkit.Equal(t, (Options{Secret: secretKey, DNSNames: []string{serverName, "127.0.0.1"}}).Validate(), nil, "the defaults are wrong")
	testkit.ErrorContains(t, New(options()).Run(t.Context(), nil, nil, nil), "the client is nil", "Run without a client returns")
}
