// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/manifests"
)

// Webhooks describes webhooks that the test itself serves, for example in the manager under test.
type Webhooks struct {
	// Paths are files or directories, as for InstallCRDs, with ValidatingWebhookConfigurations,
	// MutatingWebhookConfigurations and CustomResourceDefinitions. Default: none.
	Paths []string

	// Objects are further configurations, typed or unstructured. Default: none.
	Objects []runtime.Object

	// Address is the host and port at which the test serves the webhooks over HTTPS, such as
	// "127.0.0.1:9443". The server need not run yet. Required.
	Address string

	// CABundle has the CAs of the server's certificate, in PEM. See ServingCertificate. Required.
	CABundle []byte
}

var configurations = map[string]schema.GroupVersionResource{
	"ValidatingWebhookConfiguration": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	"MutatingWebhookConfiguration":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// InstallWebhooks is the function InstallWebhooks for this cluster.
func (c *Cluster) InstallWebhooks(ctx context.Context, w Webhooks) (remove func(context.Context) error, err error) {
	installed, err := c.installWebhooks(ctx, w)
	if err != nil {
		return nil, err
	}
	return installed.remove, nil
}

// InstallWebhooks installs webhook configurations and conversion webhooks on the server behind cfg:
// a real API server, or one of package envtest/sim. In each clientConfig, a url with Address, the
// service's path and CABundle replace the service. A clientConfig with a url stays. Of a
// CustomResourceDefinition that has only a conversion, such as webhook.Manifests returns, the whole
// one must be installed before.
//
// It returns when the API server uses the configurations, and when CustomResourceDefinitions can be
// watched. It checks only one of several API servers. For the check, it installs a webhook that
// always fails, and tries to create a Lease in namespace default, in a dry run.
//
// remove deletes what InstallWebhooks created, including the objects of CustomResourceDefinitions,
// and returns when the API server does not use it any more. A CustomResourceDefinition that existed
// before stays, with the new conversion. Call remove at the end of the test, unless the control
// plane ends, too. If InstallWebhooks returns an error, remove is nil and nothing stays installed.
func InstallWebhooks(ctx context.Context, cfg *rest.Config, w Webhooks) (remove func(context.Context) error, err error) {
	clients, err := newClients(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: cfg, clients: clients}
	installed, err := c.installWebhooks(ctx, w)
	if err != nil {
		clients.closeConnection()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer clients.closeConnection()
		return installed.remove(ctx)
	}, nil
}

func (c *Cluster) installWebhooks(ctx context.Context, w Webhooks) (*installation, error) {
	all, err := w.manifests()
	if err != nil {
		return nil, err
	}
	i := &installation{cluster: c}
	if err := i.install(ctx, all); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		return nil, errors.Join(err, i.delete(ctx))
	}
	return i, nil
}

func (w Webhooks) manifests() ([]manifests.Manifest, error) {
	if host, port, err := net.SplitHostPort(w.Address); err != nil || host == "" || port == "" || port == "0" {
		return nil, fmt.Errorf("envtest: Webhooks.Address is %q: it must be the host and port of the test's webhook server, such as 127.0.0.1:9443", w.Address)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(w.CABundle) {
		return nil, errors.New("envtest: Webhooks.CABundle has no certificate in PEM; pass the CA of the test's webhook server, or use ServingCertificate")
	}
	all, err := manifests.Read(w.Paths...)
	if err != nil {
		return nil, fmt.Errorf("envtest: %w", err)
	}
	for n, o := range w.Objects {
		u, err := unstructuredOf(o)
		if err != nil {
			return nil, fmt.Errorf("envtest: Webhooks.Objects[%d]: %w", n, err)
		}
		all = append(all, manifests.Manifest{Where: fmt.Sprintf("Webhooks.Objects[%d]", n), Object: u})
	}
	for _, m := range all {
		if err := w.rewrite(m.Object); err != nil {
			return nil, fmt.Errorf("envtest: %s: %w", m.Where, err)
		}
	}
	return all, nil
}

func unstructuredOf(o runtime.Object) (*unstructured.Unstructured, error) {
	if o == nil {
		return nil, errors.New("it is nil; remove it")
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := (&unstructured.Unstructured{Object: content}).DeepCopy()
	if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil && u.GetKind() == "" {
		u.SetGroupVersionKind(kinds[0])
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return u, manifests.Check(u)
}

func (w Webhooks) rewrite(o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	switch {
	case gvk.Group == crds.Group && gvk.Kind == "CustomResourceDefinition":
		client, found, err := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook", "clientConfig")
		if err != nil || !found {
			return err
		}
		w.redirect(client)
		return unstructured.SetNestedMap(o.Object, client, "spec", "conversion", "webhook", "clientConfig")
	case gvk.Group != "admissionregistration.k8s.io" || configurations[gvk.Kind].Version != gvk.Version:
		return fmt.Errorf("%s %s is no webhook configuration and no CustomResourceDefinition; use Apply for it", gvk.Kind, o.GetName())
	}
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		if client, ok := hook["clientConfig"].(map[string]any); ok {
			w.redirect(client)
		}
	}
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

func (w Webhooks) redirect(client map[string]any) {
	service, ok := client["service"].(map[string]any)
	if !ok {
		return
	}
	path, _ := service["path"].(string)
	delete(client, "service")
	client["url"] = "https://" + w.Address + path
	client["caBundle"] = base64.StdEncoding.EncodeToString(w.CABundle)
}

type installation struct {
	cluster *Cluster
	created []created
}

type created struct {
	resource schema.GroupVersionResource
	name     string
}

func (i *installation) install(ctx context.Context, all []manifests.Manifest) error {
	var definitions, whole []manifests.Manifest
	for _, m := range all {
		if m.Object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		definitions = append(definitions, m)
		// If it has only a conversion, as webhook.Manifests makes it, an apply would remove the
		// other fields that envtest has applied.
		_, complete, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "spec", "versions")
		err := i.convert(ctx, m.Object)
		switch {
		case apierrors.IsNotFound(err) && !complete:
			return fmt.Errorf("envtest: %s: the CustomResourceDefinition %s has only a conversion, and is not installed; install the whole one first, for example with Options.CRDs", m.Where, m.Object.GetName())
		case apierrors.IsNotFound(err):
			i.created = append(i.created, created{crds, m.Object.GetName()})
		case err != nil:
			return i.cluster.checkAlive(fmt.Errorf("envtest: %s: cannot change the conversion of %s: %w", m.Where, m.Object.GetName(), err))
		}
		if complete {
			whole = append(whole, m)
		}
	}
	if err := i.cluster.applyCRDs(ctx, whole); err != nil {
		return err
	}
	if err := i.cluster.waitServed(ctx, definitions); err != nil {
		return err
	}
	for _, m := range all {
		of, ok := configurations[m.Object.GetKind()]
		if !ok {
			continue
		}
		i.created = append(i.created, created{of, m.Object.GetName()})
		if err := i.cluster.applyOne(ctx, i.cluster.dynamic.Resource(of), m); err != nil {
			return err
		}
	}
	return i.settle(ctx)
}

// convert replaces the conversion of a CustomResourceDefinition that exists. An apply alone would
// keep the service that another client has set, beside the url.
func (i *installation) convert(ctx context.Context, crd *unstructured.Unstructured) error {
	conversion, found, _ := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if !found {
		_, err := i.cluster.dynamic.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
		return err
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/conversion", "value": conversion}})
	if err != nil {
		return err
	}
	_, err = i.cluster.dynamic.Resource(crds).Patch(ctx, crd.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

func (i *installation) remove(ctx context.Context) error {
	err := i.delete(ctx)
	if err == nil {
		err = i.settle(ctx)
	}
	for _, one := range i.created {
		if err == nil && one.resource == crds {
			err = i.cluster.waitGone(ctx, one)
		}
	}
	return err
}

func (i *installation) delete(ctx context.Context) error {
	var errs []error
	for _, one := range slices.Backward(i.created) {
		err := i.cluster.dynamic.Resource(one.resource).Delete(ctx, one.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("envtest: cannot delete %s %s: %w", one.resource.Resource, one.name, err))
		}
	}
	return i.cluster.checkAlive(errors.Join(errs...))
}

func (i *installation) settle(ctx context.Context) error {
	for _, of := range configurations {
		if !slices.ContainsFunc(i.created, func(c created) bool { return c.resource == of }) {
			continue
		}
		if err := i.cluster.waitConfigured(ctx, of); err != nil {
			return i.cluster.checkAlive(err)
		}
	}
	return nil
}

// waitConfigured returns when the API server uses the current configurations of a resource. An API
// server watches them, in the order of their changes. So it creates one more and waits until that
// one fails a request.
func (c *Cluster) waitConfigured(ctx context.Context, of schema.GroupVersionResource) error {
	id := rand.String(10)
	hook := "probe-" + id + ".envtest.setpoint.dev"
	labels := map[string]any{"envtest.setpoint.dev/probe": id}
	probe := &unstructured.Unstructured{Object: map[string]any{
		// Mutating webhooks are called in the order of these names.
		"metadata": map[string]any{"name": "0-envtest-probe-" + id},
		"webhooks": []any{map[string]any{
			"name": hook, "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "timeoutSeconds": int64(1),
			// Nothing can listen at port 0.
			"clientConfig":   map[string]any{"url": "https://127.0.0.1:0"},
			"objectSelector": map[string]any{"matchLabels": labels},
			"rules": []any{map[string]any{
				"operations": []any{"CREATE"}, "apiGroups": []any{leases.Group}, "apiVersions": []any{leases.Version}, "resources": []any{leases.Resource},
			}},
		}},
	}}
	for kind, resource := range configurations {
		if resource == of {
			probe.SetGroupVersionKind(of.GroupVersion().WithKind(kind))
		}
	}
	if _, err := c.dynamic.Resource(of).Create(ctx, probe, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("envtest: cannot find out whether the API server uses %s: %w", of.Resource, causeOf(ctx, err))
	}
	defer c.forgetProbe(ctx, of, probe.GetName())
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leases.GroupVersion().String(), "kind": "Lease", "metadata": map[string]any{"name": "envtest-probe-" + id, "labels": labels},
	}}
	for {
		_, err := c.dynamic.Resource(leases).Namespace(metav1.NamespaceDefault).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), fmt.Sprintf("failed calling webhook %q", hook)) {
			return nil
		}
		if ended := pause(ctx, betweenTries); ended != nil {
			return fmt.Errorf("envtest: the API server does not use the new %s yet; the last answer to a probe was %w: %w", of.Resource, err, ended)
		}
	}
}

// forgetProbe deletes a probe, also after the end of ctx. A probe that stays matches no object.
func (c *Cluster) forgetProbe(ctx context.Context, of schema.GroupVersionResource, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	_ = c.dynamic.Resource(of).Delete(ctx, name, metav1.DeleteOptions{})
}

func (c *Cluster) waitGone(ctx context.Context, one created) error {
	for {
		_, err := c.dynamic.Resource(one.resource).Get(ctx, one.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if ended := pause(ctx, betweenTries); ended != nil {
			return c.checkAlive(fmt.Errorf("envtest: %s %s is not gone: %w", one.resource.Resource, one.name, ended))
		}
	}
}
