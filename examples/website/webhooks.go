// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// webhooks are the operator's webhooks in this process. In a cluster, the API server reaches them
// through a Service; here, at an address of this machine.
type webhooks struct {
	*webhook.Webhooks

	listener net.Listener
	ca       []byte
}

// listenForWebhooks opens the address. Name and certificate are the demo's own, so that an operator
// in the cluster keeps its configurations.
func listenForWebhooks(address string) (*webhooks, error) {
	listener, err := server.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("-webhooks: %w", err)
	}
	host, _, _ := net.SplitHostPort(listener.Addr().String())
	certificate, ca, err := envtest.ServingCertificate(host)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	hooks, err := operator.Webhooks(webhook.Options{Name: "website-demo-" + rand.String(5), Server: server.Options{
		Listener:       listener,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
	}})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &webhooks{hooks, listener, ca}, nil
}

// install makes the API server call the webhooks, from the next request on. remove undoes that.
func (w *webhooks) install(ctx context.Context, cluster *envtest.Cluster, c *client.Client) (remove func(context.Context) error, err error) {
	manifests, err := w.Manifests()
	if err != nil {
		return nil, err
	}
	restore := func(context.Context) error { return nil }
	var objects []runtime.Object
	for _, m := range manifests {
		if m.GetKind() == "CustomResourceDefinition" {
			if m, restore, err = withConversion(ctx, c, m); err != nil {
				return nil, err
			}
		}
		objects = append(objects, m)
	}
	uninstall, err := cluster.InstallWebhooks(ctx, envtest.Webhooks{Objects: objects, Address: w.listener.Addr().String(), CABundle: w.ca})
	if err != nil {
		return nil, errors.Join(err, restore(ctx))
	}
	return func(ctx context.Context) error { return errors.Join(uninstall(ctx), restore(ctx)) }, nil
}

// withConversion returns the installed CRD with the conversion of a manifest, and a function that
// restores the conversion that the CRD has now.
func withConversion(ctx context.Context, c *client.Client, manifest *unstructured.Unstructured) (crd *unstructured.Unstructured, restore func(context.Context) error, err error) {
	crds := client.ForKind[*unstructured.Unstructured](c, manifest.GroupVersionKind())
	key := types.NamespacedName{Name: manifest.GetName()}
	if crd, err = crds.GetLive(ctx, key); err != nil {
		return nil, nil, fmt.Errorf("reading the CRD: %w", err)
	}
	before, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "conversion")
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/conversion", "value": before}})
	if err != nil {
		return nil, nil, err
	}
	conversion, _, _ := unstructured.NestedMap(manifest.Object, "spec", "conversion")
	err = unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion")
	crd.SetResourceVersion("")
	delete(crd.Object, "status")
	return crd, func(ctx context.Context) error {
		_, err := crds.Patch(ctx, key, types.JSONPatchType, patch)
		return err
	}, err
}

// remedy adds one to the error of a request for which a webhook could not be called.
func (w *webhooks) remedy(err error) error {
	if apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook") {
		return fmt.Errorf("%w; if the API server cannot reach %s, give -webhooks an address of this machine that it can reach", err, w.listener.Addr())
	}
	return err
}

// patienceToRemove bounds the removal of the webhooks.
const patienceToRemove = 10 * time.Second
