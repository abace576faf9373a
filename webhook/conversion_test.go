// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// conversionOf returns a ConversionReview for objects in JSON.
func conversionOf(version string, objects ...string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1","desiredAPIVersion":"` +
		version + `","objects":[` + strings.Join(objects, ",") + `]}}`
}

func shop(version, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"shops.example.com/%s","kind":"Shop","metadata":{"name":%q},"spec":%s}`, version, name, spec)
}

func postConversion(ctx context.Context, h http.Handler, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/convert", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// conversionAnswer is the response of a ConversionReview.
type conversionAnswer struct {
	APIVersion, Kind string
	Response         struct {
		UID              string
		ConvertedObjects []map[string]any
		Result           struct{ Status, Message string }
	}
}

func conversionIn(t *testing.T, w *httptest.ResponseRecorder) (a conversionAnswer) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %v, %s: %v", w.Code, w.Header(), w.Body, err)
	}
	testkit.Equal(t, a.APIVersion, "apiextensions.k8s.io/v1")
	testkit.Equal(t, a.Kind, "ConversionReview")
	testkit.Equal(t, a.Response.UID, "u-1")
	return a
}

func TestConversion_AWholeListInOrder(t *testing.T) {
	var answered []hook.WebhookAnswer
	h := converting().Handler(hook.On(func(a *hook.WebhookAnswer) { answered = append(answered, *a) }))
	var objects []string
	for i := range 100 {
		objects = append(objects, shop([]string{"v1alpha1", "v1beta1", "v1"}[i%3], fmt.Sprint("shop-", i), "{}"))
	}
	a := conversionIn(t, postConversion(t.Context(), h, conversionOf("shops.example.com/v1", objects...)))
	if a.Response.Result.Status != "Success" || len(a.Response.ConvertedObjects) != 100 {
		t.Fatalf("got %+v", a.Response.Result)
	}
	for i, obj := range a.Response.ConvertedObjects {
		testkit.Equal(t, obj["metadata"].(map[string]any)["name"], any(fmt.Sprint("shop-", i)))
		testkit.Equal(t, obj["apiVersion"], "shops.example.com/v1", i)
	}
	if len(answered) != 1 || !answered[0].Conversion || !answered[0].Allowed || answered[0].Webhook != "convert" {
		t.Errorf("the hook has %+v", answered)
	}
}

// TestConversion_OneFailureFailsTheRequest: the API server takes all objects or none.
func TestConversion_OneFailureFailsTheRequest(t *testing.T) {
	h := converting().Handler(hook.New(func(hook.Event) {}))
	for spec, want := range map[string]string{
		`{"address":"b"}`:     `webhook: convert Shop "bad" from shops.example.com/v1alpha1 to shops.example.com/v1: spec.address "b" has no port`,
		`{"address":"panic"}`: `webhook: convert Shop "bad" from shops.example.com/v1alpha1 to shops.example.com/v1: the function has panicked; the log of the operator has its stack`,
	} {
		a := conversionIn(t, postConversion(t.Context(), h, conversionOf("shops.example.com/v1", shop("v1alpha1", "good", "{}"), shop("v1alpha1", "bad", spec))))
		if a.Response.Result.Status != "Failure" || a.Response.Result.Message != want || a.Response.ConvertedObjects != nil {
			t.Errorf("got %+v", a.Response)
		}
	}
}

func TestConversion_BadBodiesAreNamed(t *testing.T) {
	h := converting().Handler(hook.New(func(hook.Event) {}))
	const beta = `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{"uid":"u-1"}}`
	for body, want := range map[string]string{
		`{`:  "the body is not a ConversionReview in JSON: unexpected end of JSON input",
		`{}`: `the body is "" of "", but this path is for ConversionReview of apiextensions.k8s.io/v1; set conversionReviewVersions to v1`,
		beta: `the body is "ConversionReview" of "apiextensions.k8s.io/v1beta1", but this path is for ConversionReview of apiextensions.k8s.io/v1; set conversionReviewVersions to v1`,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`:              "the ConversionReview has no request",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`: "the request of the ConversionReview has no uid",
		``: "the body is empty; send a review",
	} {
		w := postConversion(t.Context(), h, body)
		testkit.Equal(t, w.Code, http.StatusBadRequest, body)
		testkit.Equal(t, w.Body.String(), "webhook convert: "+want, body)
	}
	if w := postConversion(t.Context(), hooks().Handler(hook.New(func(hook.Event) {})), conversionOf("shops.example.com/v1")); w.Code != http.StatusNotFound {
		t.Errorf("without a conversion: %d %s", w.Code, w.Body)
	}
}

// TestConversion_EndsWithItsClient: a long list stops when the API server has left.
func TestConversion_EndsWithItsClient(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	calls := 0
	w := hooks()
	webhook.AddConversion(w, func(*ShopAlpha, *Shop) error {
		calls++
		cancel(errors.New("the client has left"))
		return nil
	}, toAlpha)
	got := postConversion(ctx, w.Handler(hook.New(func(hook.Event) {})), conversionOf("shops.example.com/v1", shop("v1alpha1", "a", "{}"), shop("v1alpha1", "b", "{}")))
	if calls != 1 || got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "the client has left") {
		t.Errorf("%d calls, status %d: %s", calls, got.Code, got.Body)
	}
}

// FuzzConversion sends any body: the answer is a sentence or a review for the request.
func FuzzConversion(f *testing.F) {
	for _, seed := range []string{
		conversionOf("shops.example.com/v1", shop("v1alpha1", "a", `{"address":"x:1"}`), alpha),
		conversionOf("shops.example.com/v1beta1", shop("v1", "a", `{"host":"x","port":1,"aisles":["a"]}`)),
		conversionOf("shops.example.com/v2", `null`, `[]`, `{"metadata":{"labels":{"a":1}}}`), conversionOf("", `{}`), `{"request":{"objects":{}}}`,
	} {
		f.Add([]byte(seed))
	}
	h := converting().Handler(hook.New(func(hook.Event) {}))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := postConversion(t.Context(), h, string(body))
		var in struct {
			Request struct {
				Objects []json.RawMessage `json:"objects"`
			} `json:"request"`
		}
		var out conversionAnswer
		switch {
		case w.Code == http.StatusBadRequest && strings.HasPrefix(w.Body.String(), "webhook convert: the "):
		case w.Code != http.StatusOK:
			t.Errorf("status %d: %s", w.Code, w.Body)
		case json.Unmarshal(w.Body.Bytes(), &out) != nil || kjson.UnmarshalCaseSensitivePreserveInts(body, &in) != nil:
			t.Errorf("no answer: %s", w.Body)
		case out.Response.Result.Status == "Success" && len(out.Response.ConvertedObjects) != len(in.Request.Objects):
			t.Errorf("%d objects became %d", len(in.Request.Objects), len(out.Response.ConvertedObjects))
		case out.Response.Result.Status == "Failure" && out.Response.Result.Message == "":
			t.Error("a failure without a message")
		}
	})
}

// TestConversion_ACallerThatHasGone is no error of the webhook.
func TestConversion_ACallerThatHasGone(t *testing.T) {
	h := converting().Handler(hook.New(func(hook.Event) {}))
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil))))
	cancel()
	postConversion(ctx, h, conversionOf("shops.example.com/v1", shop("v1alpha1", "good", "{}")))
	if text := log.String(); !strings.Contains(text, `level=INFO msg="a call of a webhook was given up by its caller" webhook=convert`) || strings.Contains(text, "level=ERROR") {
		t.Errorf("the log has %q", text)
	}
}
