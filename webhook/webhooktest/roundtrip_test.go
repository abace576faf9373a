// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
	"github.com/setpoint-dev/setpoint/webhook/webhooktest"
)

type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Spec `json:"spec,omitempty"`
}

type Spec struct {
	Replicas int               `json:"replicas,omitempty"`
	Hosts    []string          `json:"hosts"` // null and [] differ
	Options  map[string]string `json:"options,omitempty"`
	Cache    *Cache            `json:"cache,omitempty"`
}

type Cache struct {
	Size int `json:"size,omitempty"`
}

type OldSite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Size    int               `json:"size,omitempty"`
	Hosts   []string          `json:"hosts"`
	Options map[string]string `json:"options,omitempty"`
}

func (s *Site) DeepCopyObject() runtime.Object    { return copyOf(s) }
func (s *OldSite) DeepCopyObject() runtime.Object { return copyOf(s) }

func copyOf[T any](from *T) *T {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
	return to
}

func hooks(toHub func(*OldSite, *Site) error, fromHub func(*Site, *OldSite) error) *webhook.Webhooks {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Site"}, &Site{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "web.example.com", Version: "v1alpha1", Kind: "Site"}, &OldSite{})
	w := webhook.New(webhook.Options{Name: "sites", Scheme: scheme, Service: types.NamespacedName{Namespace: "a", Name: "b"}})
	if toHub != nil {
		webhook.AddConversion(w, toHub, fromHub)
	}
	return w
}

const kept = "web.example.com/cache"

func toHub(from *OldSite, to *Site) error {
	to.Spec.Replicas, to.Spec.Hosts, to.Spec.Options = from.Size, from.Hosts, from.Options
	text, ok := to.Annotations[kept]
	if !ok {
		return nil
	}
	delete(to.Annotations, kept)
	return json.Unmarshal([]byte(text), &to.Spec.Cache)
}

func fromHub(from *Site, to *OldSite) error {
	to.Size, to.Hosts, to.Options = from.Spec.Replicas, from.Spec.Hosts, from.Spec.Options
	text, err := json.Marshal(from.Spec.Cache)
	if from.Spec.Cache != nil {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, kept, string(text))
	}
	return err
}

// failures records the errors of a test that should fail.
type failures struct {
	testing.TB

	text string
}

func (f *failures) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) + "\n" }
func (f *failures) Helper()                           {}

// TestA5_RoundTripPassesALosslessConversion: an annotation keeps what the old version cannot
// express.
func TestA5_RoundTripPassesALosslessConversion(t *testing.T) {
	webhooktest.RoundTrip(t, hooks(toHub, fromHub), webhooktest.Options{})
}

// TestA5_RoundTripNamesLostFields: each kind of loss is found, with the path and both values.
func TestA5_RoundTripNamesLostFields(t *testing.T) {
	for name, test := range map[string]struct {
		toHub   func(*OldSite, *Site) error
		fromHub func(*Site, *OldSite) error
		want    []string
	}{
		"a forgotten field": {
			func(from *OldSite, to *Site) error { err := toHub(from, to); to.Spec.Replicas = 0; return err }, fromHub,
			[]string{"Site from v1alpha1 to v1 and back: ", "; size: ", " became nothing", "Site from v1 to v1alpha1 and back: ", "spec.replicas: ", "(seed 7)"},
		},
		"nil instead of empty": {
			toHub, func(from *Site, to *OldSite) error {
				err := fromHub(from, to)
				to.Hosts = append([]string(nil), to.Hosts...)
				return err
			},
			[]string{"spec.hosts: [] became null"},
		},
		"a truncated list": {
			toHub, func(from *Site, to *OldSite) error {
				err := fromHub(from, to)
				to.Hosts = to.Hosts[:min(len(to.Hosts), 1)]
				return err
			},
			[]string{"hosts: ["},
		},
		"a field without a place": {
			toHub, func(from *Site, to *OldSite) error { from.Spec.Cache = nil; return fromHub(from, to) },
			[]string{"Site from v1 to v1alpha1 and back: ", `spec.cache: {`},
		},
		"lost labels": {
			func(from *OldSite, to *Site) error { to.Labels = nil; return toHub(from, to) }, fromHub,
			[]string{"metadata.labels: {", " became nothing"},
		},
		"an error": {
			func(*OldSite, *Site) error { return fmt.Errorf("no luck") }, fromHub,
			[]string{"webhook: convert Site ", " from web.example.com/v1alpha1 to web.example.com/v1: no luck"},
		},
		"no conversion": {nil, nil, []string{"the webhooks have no conversion; add one with webhook.AddConversion"}},
	} {
		f := &failures{TB: t}
		webhooktest.RoundTrip(f, hooks(test.toHub, test.fromHub), webhooktest.Options{Seed: 7})
		for _, want := range test.want {
			testkit.Contains(t, f.text, strings.TrimPrefix(want, "; "), name, fmt.Sprintf("%q is missing in", want))
		}
	}
}

func TestRoundTrip_HubOnlyFieldsMayGetLost(t *testing.T) {
	lossy := func(from *Site, to *OldSite) error { from.Spec.Cache = nil; return fromHub(from, to) }
	adjusted := 0
	webhooktest.RoundTrip(t, hooks(toHub, lossy), webhooktest.Options{
		HubOnly: []string{"spec.cache"}, Objects: 10, Adjust: func(client.Object) { adjusted++ },
	})
	testkit.Equal(t, adjusted, 20, "Adjust got objects")
}
