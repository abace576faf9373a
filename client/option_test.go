// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestOptions: options are sent, and wrong ones are refused before anything is sent.
func TestOptions(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{FieldOwner: "usual"}))
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Subresource != "status" {
			return nil, nil
		}
		return r.Send(`{"apiVersion":"v1","kind":"ConfigMap"}`) // ConfigMaps have no status
	})
	key, desired := name("default", "a"), coreac.ConfigMap("a", "default")
	obj, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	testkit.NoError(t, err)
	calls := map[string]func(...client.Option) error{
		"create": func(o ...client.Option) error { return second(maps.Create(ctx, obj, o...)) },
		"update": func(o ...client.Option) error { return second(maps.Update(ctx, obj, o...)) },
		"update the status of": func(o ...client.Option) error {
			return second(maps.UpdateStatus(ctx, obj, o...))
		},
		"patch": func(o ...client.Option) error {
			return second(maps.Patch(ctx, key, types.MergePatchType, []byte("{}"), o...))
		},
		"patch the status of": func(o ...client.Option) error {
			return second(maps.PatchStatus(ctx, key, types.MergePatchType, []byte("{}"), o...))
		},
		"apply":  func(o ...client.Option) error { return second(maps.Apply(ctx, desired, o...)) },
		"delete": func(o ...client.Option) error { return maps.Delete(ctx, key, o...) },
	}
	takes := map[string][]string{
		"create": {"DryRun", "FieldOwner", "FieldValidation"}, "update": {"DryRun", "FieldOwner", "FieldValidation"},
		"update the status of": {"DryRun", "FieldOwner", "FieldValidation"}, "patch": {"DryRun", "FieldOwner", "FieldValidation"},
		"patch the status of": {"DryRun", "FieldOwner", "FieldValidation"},
		"apply":               {"DryRun", "FieldOwner", "UnlessAlready", "FieldValidation", "NoForce"},
		"delete":              {"DryRun", "Preconditions", "Propagation", "GracePeriod"},
	}
	options := map[string]client.Option{
		"DryRun": client.DryRun(), "FieldOwner": client.FieldOwner("mine"), "UnlessAlready": client.UnlessAlready(nil),
		"Preconditions": client.Preconditions("u", ""), "Propagation": client.Propagation(metav1.DeletePropagationForeground), "GracePeriod": client.GracePeriod(0),
		"FieldValidation": client.FieldValidation(metav1.FieldValidationStrict), "NoForce": client.NoForce(), "OptimisticLock": client.OptimisticLock(),
	}
	for what, call := range calls {
		for option, o := range options {
			before := len(api.Requests())
			err := call(o, client.Option{})
			// Discovery shows that a ConfigMap has no status.
			isDiscovery := func(r *sim.Request) bool { return r.Verb == "discover" }
			sent := slices.DeleteFunc(api.Requests()[before:], isDiscovery)
			if !strings.Contains(strings.Join(takes[what], " "), option) {
				wants(t, err, what+" ConfigMap: this call does not take client."+option)
				testkit.Equal(t, len(sent), 0, fmt.Sprintf("%s with %s was sent", what, option))
				continue
			}
			if len(sent) != 1 {
				t.Fatalf("%s with %s: %v, %v", what, option, sent, err)
			}
			if option == "FieldOwner" && sent[0].Query.Get("fieldManager") != "mine" {
				t.Errorf("%s: the field owner is %q", what, sent[0].Query.Get("fieldManager"))
			}
			testkit.Equal(t, sent[0].Query.Get("force") == "true", what == "apply" && option != "NoForce", fmt.Sprintf("%s with %s", what, option), "forced")
			testkit.Equal(t, sent[0].Query.Get("fieldValidation") == "Strict", option == "FieldValidation", fmt.Sprintf("%s with %s", what, option))
			if option == "DryRun" && what != "delete" && sent[0].Query.Get("dryRun") != "All" {
				t.Errorf("%s: no dry run: %v", what, sent[0].Query)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDeleteOptions(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	cfg := api.Config()
	var body string
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete {
				data, _ := io.ReadAll(r.Body)
				body = string(data)
				r = r.Clone(r.Context())
				r.Body = io.NopCloser(strings.NewReader(body))
			}
			return rt.RoundTrip(r)
		})
	}
	cfg.ContentType = "application/json"
	c, err := client.New(cfg, client.Options{Scheme: jsonScheme(t)})
	testkit.NoError(t, err)
	h := client.For[*widget](c)
	api.Serve(widgets)
	for want, o := range map[string][]client.Option{
		`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`:                                                   nil,
		`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground","dryRun":["All"]}`:                                  {client.DryRun(), client.Propagation(metav1.DeletePropagationForeground)},
		`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}`:                            {client.GracePeriod(time.Hour), client.GracePeriod(0)},
		`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}`: {client.Preconditions("u", "7")},
		`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"7"},"propagationPolicy":"Background"}`:           {client.Preconditions("", "7")},
	} {
		_ = h.Delete(t.Context(), name("default", "a"), o...)
		testkit.Contains(t, strings.TrimSpace(body), strings.TrimPrefix(strings.TrimSuffix(want, "}"), `{"kind":"DeleteOptions","apiVersion":"v1",`))
	}
}

func TestOptionMistakes(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps, key := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{})), name("default", "a")
	remove := func(o client.Option) error { return maps.Delete(ctx, key, o) }
	apply := func(o client.Option) error {
		return second(maps.Apply(ctx, coreac.ConfigMap("a", "default"), o))
	}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{remove(client.Preconditions("", "")), []string{"delete ConfigMap: client.Preconditions", "neither"}},
		{remove(client.GracePeriod(time.Millisecond)), []string{"client.GracePeriod", "1ms", "whole seconds"}},
		{remove(client.GracePeriod(-time.Second)), []string{"client.GracePeriod", "-1s"}},
		{apply(client.FieldOwner("")), []string{"apply ConfigMap: client.FieldOwner", "empty"}},
		{apply(client.FieldOwner(strings.Repeat("x", 129))), []string{"client.FieldOwner", "129 bytes"}},
		{apply(client.FieldOwner("a\n")), []string{"client.FieldOwner", "printable"}},
		{apply(client.UnlessAlready(&corev1.Secret{})), []string{"apply ConfigMap default/a", "client.UnlessAlready was given a *v1.Secret, not a *v1.ConfigMap"}},
		{apply(client.UnlessAlready(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}})), []string{"apply ConfigMap default/a", "another object, x/a"}},
	} {
		wants(t, c.err, c.want...)
	}
	testkit.Equal(t, api.Count("", sim.ConfigMaps), 0, "requests")
}
