// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// alpha is a shop in v1alpha1 with metadata that the Go type of this client does not have.
const alpha = `{"apiVersion":"shops.example.com/v1alpha1","kind":"Shop","metadata":{"name":"a","namespace":"mall",
	"uid":"5","resourceVersion":"7","generation":2,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"size":"l"},
	"annotations":{"shops.example.com/aisles":"bread,milk"},"finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"8"}],
	"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"shops.example.com/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:address":{}}}}],
	"future":{"deep":[1]}},"spec":{"address":"shop.test:80"}}`

func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var all map[string]any
	testkit.NoError(t, json.Unmarshal(text, &all), string(text))
	return all
}

func converted(t *testing.T, w *webhook.Webhooks, object, version string) map[string]any {
	t.Helper()
	got, err := w.ConvertObject(t.Context(), []byte(object), group+"/"+version)
	testkit.NoError(t, err)
	return decoded(t, got)
}

// TestA5_ConversionKeepsMetadata: everything but labels and annotations stays as it was, also
// fields that this client does not know.
func TestA5_ConversionKeepsMetadata(t *testing.T) {
	want := decoded(t, []byte(alpha))["metadata"].(map[string]any)
	got := converted(t, converting(), alpha, "v1")
	meta := got["metadata"].(map[string]any)
	if _, ok := meta["annotations"]; ok {
		t.Errorf("the function has removed the annotation, which came back: %v", meta["annotations"])
	}
	delete(want, "annotations")
	testkit.DeepEqual(t, meta, want, "the metadata became")
	spec := map[string]any{"host": "shop.test", "port": 80.0, "aisles": []any{"bread", "milk"}}
	testkit.DeepEqual(t, got["spec"], spec)
	testkit.Equal(t, got["apiVersion"], "shops.example.com/v1")
	testkit.Equal(t, got["kind"], "Shop")
}

// TestA5_AFunctionCannotChangeMetadata: a function that replaces the object or changes its identity
// does no harm.
func TestA5_AFunctionCannotChangeMetadata(t *testing.T) {
	for name, change := range map[string]func(*Shop){
		"replaces the object": func(s *Shop) { *s = Shop{Spec: ShopSpec{Host: "x"}} },
		"changes metadata":    func(s *Shop) { s.Name, s.UID, s.Finalizers, s.ResourceVersion = "other", "other", nil, "" },
		"changes the original": func(s *Shop) {
			s.OwnerReferences[0].Name = "other"
			s.ManagedFields[0].Manager = "other"
		},
	} {
		w := hooks()
		webhook.AddConversion(w, func(from *ShopAlpha, to *Shop) error { change(to); from.Name = "changed"; return nil }, toAlpha)
		got := converted(t, w, alpha, "v1")["metadata"]
		testkit.DeepEqual(t, got, decoded(t, []byte(alpha))["metadata"], fmt.Sprintf("a function that %s", name), "the metadata became")
	}
}

func TestConvert_SpokeToSpokeGoesThroughTheHub(t *testing.T) {
	got := converted(t, converting(), alpha, "v1beta1")
	spec := map[string]any{"host": "shop.test", "port": "80", "aisles": []any{"bread", "milk"}}
	testkit.DeepEqual(t, got["spec"], spec)
	testkit.Equal(t, got["apiVersion"], "shops.example.com/v1beta1")
}

func TestConvert_TheSameVersionIsUnchanged(t *testing.T) {
	for _, text := range []string{alpha, `{"apiVersion":"other.example.com/v1alpha1","kind":"Unknown","metadata":{"name":"a"},"x":1}`} {
		version := decoded(t, []byte(text))["apiVersion"].(string)
		got, err := converting().ConvertObject(t.Context(), []byte(text), version)
		testkit.Equal(t, err, nil)
		testkit.Equal(t, string(got), text)
	}
}

// TestConvert_ErrorsNameTheObject: each failure is one sentence with the object and both versions.
func TestConvert_ErrorsNameTheObject(t *testing.T) {
	shop := func(version, rest string) string {
		return `{"apiVersion":"shops.example.com/` + version + `","kind":"Shop","metadata":{"name":"a","namespace":"mall"}` + rest + `}`
	}
	for name, test := range map[string]struct{ object, version, want string }{
		"an error": {shop("v1alpha1", `,"spec":{"address":"b"}`), group + "/v1",
			`webhook: convert Shop "mall/a" from shops.example.com/v1alpha1 to shops.example.com/v1: spec.address "b" has no port`},
		"a panic": {shop("v1alpha1", `,"spec":{"address":"panic"}`), group + "/v1",
			`webhook: convert Shop "mall/a" from shops.example.com/v1alpha1 to shops.example.com/v1: the function has panicked; the log of the operator has its stack`},
		"an unknown version": {shop("v2", ""), group + "/v1",
			`webhook: convert Shop "mall/a" from shops.example.com/v2 to shops.example.com/v1: version v2 is unknown, there are v1 as hub and ["v1alpha1" "v1beta1"]; add it with webhook.AddConversion`},
		"an unknown wanted version": {shop("v1", ""), group + "/v2",
			`webhook: convert Shop "mall/a" from shops.example.com/v1 to shops.example.com/v2: version v2 is unknown, there are v1 as hub and ["v1alpha1" "v1beta1"]; add it with webhook.AddConversion`},
		"an unknown kind": {`{"apiVersion":"shops.example.com/v1","kind":"Mall","metadata":{"name":"m"}}`, group + "/v1beta1",
			`webhook: convert Mall "m" from shops.example.com/v1 to shops.example.com/v1beta1: no conversion has the kind Mall.shops.example.com; add its versions with webhook.AddConversion`},
		"another group": {shop("v1", ""), "other.example.com/v1beta1",
			`webhook: convert Shop "mall/a" from shops.example.com/v1 to other.example.com/v1beta1: the group differs; a conversion changes only the version`},
		"no version": {shop("v1", ""), "a/b/c",
			`webhook: convert Shop "mall/a" from shops.example.com/v1 to a/b/c: the version is not like web.example.com/v1`},
		"another type": {shop("v1beta1", `,"spec":{"port":80}`), group + "/v1",
			`webhook: convert Shop "mall/a" from shops.example.com/v1beta1 to shops.example.com/v1: the object does not fit the Go type *webhook_test.ShopBeta: json: cannot unmarshal number into Go struct field .spec.port of type string`},
		"no kind":   {`{"apiVersion":"a/v1"}`, group + "/v1", "webhook: an object of a conversion has no kind or no apiVersion"},
		"no object": {`[]`, group + "/v1", `webhook: an object of a conversion is not JSON with a kind and metadata: json: cannot unmarshal array into Go value of type`},
	} {
		got, err := converting().ConvertObject(t.Context(), []byte(test.object), test.version)
		testkit.DeepEqual(t, got, []byte(nil), name)
		testkit.HasPrefix(t, fmt.Sprint(err), test.want, name)
	}
}

func TestConvert_MistakesAreNamed(t *testing.T) {
	for want, add := range map[string]func(*webhook.Webhooks){
		"webhook.AddConversion[*webhook_test.ShopBeta, *webhook_test.ShopAlpha]: the hub of Shop.shops.example.com is v1 already; give all versions of a kind the same hub": func(w *webhook.Webhooks) {
			webhook.AddConversion(w, func(*ShopBeta, *ShopAlpha) error { return nil }, func(*ShopAlpha, *ShopBeta) error { return nil })
		},
		"version v1alpha1 has been added before; add each version once": func(w *webhook.Webhooks) { webhook.AddConversion(w, fromAlpha, toAlpha) },
		"Options.Scheme does not have the type *v1.Pod": func(w *webhook.Webhooks) {
			webhook.AddConversion(w, func(*corev1.Pod, *Shop) error { return nil }, func(*Shop, *corev1.Pod) error { return nil })
		},
		"both are version v1; the hub needs no conversion": func(w *webhook.Webhooks) {
			webhook.AddConversion(w, func(*Shop, *Shop) error { return nil }, func(*Shop, *Shop) error { return nil })
		},
		"a function is nil; give one for each direction": func(w *webhook.Webhooks) { webhook.AddConversion(w, fromBeta, nil) },
	} {
		w := hooks()
		webhook.AddConversion(w, fromAlpha, toAlpha)
		add(w)
		testkit.ErrorContains(t, w.Validate(), want)
	}
	testkit.Equal(t, converting().Validate(), nil, "the conversions of a kind")
}
