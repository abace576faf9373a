// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// world is an API server with a client.
type world struct {
	t   *testing.T
	c   *client.Client // strict
	cfg *rest.Config
	log bytes.Buffer
	to  slog.Handler // log
}

// noCertificates is a server for which the process manages no certificates.
var noCertificates = server.Options{CertDir: "unused"}

// register runs webhooks with Register until the bubble ends. names are the names of its
// defaulters.
func (w *world) register(names ...string) (hooks *webhook.Webhooks, stop func()) {
	hooks = webhook.New(webhook.Options{
		Name: "shop-operator", Scheme: shops(), Service: types.NamespacedName{Namespace: "shop-system", Name: "shop-webhook"}, Register: true,
		Server: noCertificates,
	})
	for _, name := range names {
		webhook.AddDefaulter(hooks, func(context.Context, *Shop) error { return nil }, webhook.Registration{Name: name})
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ctx = logr.NewContextWithSlogLogger(ctx, slog.New(w.to))
	rec := events.New(w.c, events.Options{Name: "shop-operator"})
	recorded, done := make(chan error, 1), make(chan error, 1)
	go func() { recorded <- rec.Run(ctx) }()
	go func() { done <- hooks.Run(ctx, w.c, rec) }()
	synctest.Wait()
	return hooks, func() {
		cancel()
		testkit.Equal(w.t, <-done, nil)
		<-recorded
	}
}

func (w *world) mutating() *admissionregistrationv1.MutatingWebhookConfiguration {
	w.t.Helper()
	got, err := client.For[*admissionregistrationv1.MutatingWebhookConfiguration](w.c).GetLive(w.t.Context(), types.NamespacedName{Name: "shop-operator"})
	testkit.NoError(w.t, err)
	return got
}

// patch changes the configuration as a field manager.
func (w *world) patch(manager, patch string) {
	w.t.Helper()
	c, err := client.New(w.cfg, client.Options{})
	testkit.NoError(w.t, err)
	h := client.For[*admissionregistrationv1.MutatingWebhookConfiguration](c)
	testkit.NoError(w.t, testkit.Err(h.Patch(w.t.Context(), types.NamespacedName{Name: "shop-operator"}, types.JSONPatchType, []byte(patch), client.FieldOwner(manager))))
}

func (w *world) seconds() (all []int32) {
	for _, h := range w.mutating().Webhooks {
		all = append(all, *h.TimeoutSeconds)
	}
	return all
}

func inWorld(t *testing.T, do func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		known := runtime.NewScheme()
		testkit.NoError(t, scheme.AddToScheme(known))
		cfg := sim.New(t, known).Config()
		c, err := client.New(cfg, client.Options{Scheme: known, RequireTerm: true})
		testkit.NoError(t, err)
		w := &world{t: t, c: c, cfg: cfg}
		w.to = slog.NewTextHandler(&w.log, nil)
		do(w)
	})
}

const (
	one = "one.shops.example.com"
	two = "two.shops.example.com"
)

// TestRegister_RestoresAndNamesTheFieldManager: a change by others is undone, with one log line and
// one event that names its field manager.
func TestRegister_RestoresAndNamesTheFieldManager(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		hooks, stop := w.register(one)
		defer stop()
		if err := hooks.Check(t.Context()); err != nil || len(w.seconds()) != 1 {
			t.Fatalf("after the start: %v, %v", err, w.seconds())
		}
		w.patch("some-tool", `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":29}]`)
		synctest.Wait()
		if err := hooks.Check(t.Context()); err == nil || err.Error() != `MutatingWebhookConfiguration shop-operator is not in place: `+
			`the field manager "some-tool" has changed .webhooks[name="one.shops.example.com"].timeoutSeconds; it is being restored` {
			t.Errorf("before it is restored: %v", err)
		}
		time.Sleep(10 * time.Second)
		testkit.NoError(t, hooks.Check(t.Context()), "it is not restored")
		testkit.Equal(t, w.seconds()[0], 10, "it is not restored")
		const line = `the field manager \"some-tool\" has changed .webhooks[name=\"one.shops.example.com\"].timeoutSeconds`
		testkit.Count(t, w.log.String(), line, 1)
		notes := ""
		for e, err := range client.For[*eventsv1.Event](w.c).ListLive(t.Context(), client.ListOptions{}) {
			testkit.NoError(t, err)
			notes += e.Note + "\n"
		}
		testkit.Equal(t, notes, `the field manager "some-tool" has changed .webhooks[name="one.shops.example.com"].timeoutSeconds; the operator restores it`+"\n", "the events")
	})
}

// TestRegister_DoesNotFightAtFullSpeed: a tool that changes it again and again gets a slow answer.
func TestRegister_DoesNotFightAtFullSpeed(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		_, stop := w.register(one)
		defer stop()
		before := w.mutating().Generation
		for range 600 {
			if w.seconds()[0] == 10 {
				w.patch("some-tool", `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":29}]`)
			}
			time.Sleep(time.Second)
		}
		testkit.Between(t, w.mutating().Generation-before, 4, 40)
	})
}

// refusing is an API server that refuses patches.
type refusing struct {
	http.RoundTripper

	patches *atomic.Int32
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPatch {
		return r.RoundTripper.RoundTrip(request)
	}
	r.patches.Add(1)
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"patches are refused","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(strings.NewReader(status)),
	}, nil
}

// TestRegister_AFailureIsNamedAndRetriedSlowly: in Check, and once in the log.
func TestRegister_AFailureIsNamedAndRetriedSlowly(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		var patches atomic.Int32
		cfg := rest.CopyConfig(w.cfg)
		cfg.Wrap(func(to http.RoundTripper) http.RoundTripper { return refusing{to, &patches} })
		c, err := client.New(cfg, client.Options{Scheme: w.c.Scheme(), RequireTerm: true})
		testkit.NoError(t, err)
		w.c = c
		hooks, stop := w.register(one)
		defer stop()
		time.Sleep(10 * time.Minute)
		if err := hooks.Check(t.Context()); err == nil || err.Error() != "MutatingWebhookConfiguration shop-operator is not in place: apply MutatingWebhookConfiguration shop-operator: patches are refused" {
			t.Errorf("Check returns %v", err)
		}
		testkit.Between(t, patches.Load(), 10, 20)
		testkit.Count(t, w.log.String(), "a webhook registration is not in place", 1)
	})
}

// TestRegister_DuringARollout: replicas of two versions do not fight, and the one that stays wins.
func TestRegister_DuringARollout(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		first, stopFirst := w.register(one)
		_, stopSecond := w.register(one, two)
		defer stopSecond()
		testkit.NoError(t, first.Check(t.Context()), "after the start of the second version")
		testkit.Len(t, w.seconds(), 2, "after the start of the second version")
		stopFirst()
		_, stopFirst = w.register(one) // a pod of the old version that starts late
		testkit.Len(t, w.seconds(), 1, "after a late start of the first version")
		stopFirst()
		time.Sleep(6 * time.Minute)
		testkit.Len(t, w.seconds(), 2, "after the rollout")
		testkit.NotContains(t, w.log.String(), "level=WARN", "after the rollout")
	})
}

// TestRegister_RemovesWebhooksOfAnOlderVersion: also if another field owner has written their CA.
func TestRegister_RemovesWebhooksOfAnOlderVersion(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		_, stop := w.register(one, two)
		w.patch("certs", `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"Cg=="},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"Cg=="}]`)
		synctest.Wait()
		stop()
		_, stop = w.register(two)
		stop()
		if got := w.mutating().Webhooks; len(got) != 1 || got[0].Name != two || string(got[0].ClientConfig.CABundle) != "\n" {
			t.Errorf("got %+v", got)
		}
		_, stop = w.register()
		stop()
		testkit.Len(t, w.mutating().Webhooks, 0)
	})
}

// TestRegister_AMissingCRDIsNamed: conversion waits for the CRD.
func TestRegister_AMissingCRDIsNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		hooks := webhook.New(webhook.Options{Name: "shop-operator", Scheme: shops(), Service: types.NamespacedName{Namespace: "a", Name: "b"}, Register: true, Server: noCertificates})
		webhook.AddConversion(hooks, fromAlpha, toAlpha)
		testkit.Equal(t, fmt.Sprint(hooks.Check(t.Context())), "CustomResourceDefinition shops.shops.example.com is not applied yet", "before Run")
		ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.DiscardHandler)))
		done := make(chan error)
		go func() { done <- hooks.Run(ctx, w.c, events.New(w.c, events.Options{Name: "shop-operator"})) }()
		synctest.Wait()
		const want = "CustomResourceDefinition shops.shops.example.com is not in place: the CustomResourceDefinition shops.shops.example.com is not installed; install it with the operator"
		testkit.Equal(t, fmt.Sprint(hooks.Check(t.Context())), want)
		cancel()
		testkit.Equal(t, <-done, nil)
	})
}
