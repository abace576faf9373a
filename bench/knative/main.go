// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command knative is a replica with webhooks of knative.dev/pkg, for the part "rotation" of command
// bench. It is a module of its own because that version of knative.dev/pkg does not build with the
// client-go that Setpoint uses.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/injection/sharedmain"
	"knative.dev/pkg/leaderelection"
	"knative.dev/pkg/webhook"
	"knative.dev/pkg/webhook/certificates"
	"knative.dev/pkg/webhook/certificates/resources"
	"knative.dev/pkg/webhook/resourcesemantics"
	"knative.dev/pkg/webhook/resourcesemantics/conversion"
	"knative.dev/pkg/webhook/resourcesemantics/validation"
)

// Package e2e/rotation has the same names.
const (
	name    = "lamps.rotation.example.com"
	service = "lamps"
	secret  = "lamps-certificates"
)

// lifetime is how long a certificate is used. The reconciler replaces one that expires within a
// day.
const lifetime = 4 * time.Second

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until the standard input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the flow of sharedmain.WebhookMainWithContext, without the servers that need fixed ports:
// three replicas share a machine.
func run(ctx context.Context) error {
	if err := os.Setenv("SYSTEM_NAMESPACE", os.Getenv("ROTATION_NAMESPACE")); err != nil {
		return err
	}
	resources.MakeSecret = makeSecret
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("ROTATION_KUBECONFIG"))
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 100, 200
	ctx = controller.WithResyncPeriod(ctx, time.Second)
	ctx = webhook.WithOptions(ctx, webhook.Options{ServiceName: service, SecretName: secret})
	ctx, startInformers := injection.EnableInjectionOrDie(ctx, cfg)
	ctx = leaderelection.WithDynamicLeaderElectorBuilder(ctx, kubeclient.Get(ctx), leaderelection.ComponentConfig{
		Component: "lamps", Buckets: 1, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	})
	controllers, hooks := sharedmain.ControllersAndWebhooksFromCtors(ctx, nil, certificates.NewController, newValidation, newConversion)
	wh, err := webhook.New(ctx, hooks)
	if err != nil {
		return err
	}
	startInformers()
	wh.InformersHaveSynced()
	ended := make(chan error, 2)
	go func() { ended <- controller.StartAll(ctx, controllers...) }()
	go func() { ended <- serve(ctx, wh) }()
	return <-ended
}

func newValidation(ctx context.Context, _ configmap.Watcher) *controller.Impl {
	types := map[schema.GroupVersionKind]resourcesemantics.GenericCRD{kind("v1"): &Lamp{}}
	return validation.NewAdmissionController(ctx, name, "/"+name, types, func(ctx context.Context) context.Context { return ctx }, false)
}

func newConversion(ctx context.Context, _ configmap.Watcher) *controller.Impl {
	return conversion.NewConversionController(ctx, "/convert", map[schema.GroupKind]conversion.GroupKindConversion{
		kind("").GroupKind(): {DefinitionName: name, HubVersion: "v1", Zygotes: map[string]conversion.ConvertibleObject{"v1": &Lamp{}, "v1alpha1": &AlphaLamp{}}},
	}, func(ctx context.Context) context.Context { return ctx })
}

// makeSecret is resources.MakeSecretInternal with another lifetime.
func makeSecret(ctx context.Context, name, namespace, serviceName string) (*corev1.Secret, error) {
	key, cert, ca, err := resources.CreateCerts(ctx, serviceName, namespace, time.Now().Add(24*time.Hour+lifetime))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string][]byte{resources.ServerKey: key, resources.ServerCert: cert, resources.CACert: ca},
	}, err
}

// serve serves the webhooks with their own TLS configuration. Webhook.Run has no free port, and its
// answers do not close their connections. HTTP/2 is off, as in newer versions.
func serve(ctx context.Context, wh *webhook.Webhook) error {
	secure := (*tls.Config)(reflect.ValueOf(wh).Elem().FieldByName("tlsConfig").UnsafePointer())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{TLSConfig: secure, ReadHeaderTimeout: time.Minute, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		wh.ServeHTTP(w, r)
	})
	go printReady(ctx, l.Addr().String(), secure)
	if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// printReady prints the address when the server has a certificate, as its readiness probe would.
func printReady(ctx context.Context, address string, secure *tls.Config) {
	for ctx.Err() == nil {
		if certificate, err := secure.GetCertificate(nil); err == nil && certificate != nil {
			fmt.Println("ready", address)
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
