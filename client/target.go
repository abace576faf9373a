// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// target is one kind at one API server.
type target struct {
	client *Client
	gvk    schema.GroupVersionKind
	err    error // why the kind cannot be used; each call returns it
}

// call reads options for a call that is called what.
func (t target) call(v verb, what string, options []Option) (call, error) {
	if t.err != nil {
		return call{}, t.err
	}
	background := metav1.DeletePropagationBackground
	c := call{owner: t.client.fieldOwner, delete: metav1.DeleteOptions{PropagationPolicy: &background}}
	for _, o := range options {
		if o.set == nil {
			continue
		}
		if o.fits&v == 0 {
			return call{}, fmt.Errorf("%s %s: client.%s is no option of it", what, t.gvk.Kind, o.name)
		}
		if err := o.set(&c); err != nil {
			return call{}, fmt.Errorf("%s %s: client.%s: %w", what, t.gvk.Kind, o.name, err)
		}
	}
	c.delete.DryRun = c.dryRun
	return c, nil
}

// at says where the kind is served, for an object of this name. what is the verb, for errors.
func (t target) at(ctx context.Context, what string, key types.NamespacedName) (*meta.RESTMapping, error) {
	if t.err == nil && key.Name == "" {
		return nil, fmt.Errorf("%s %s: the name is empty", what, t.gvk.Kind)
	}
	return t.mapping(ctx, key.Namespace)
}

// of is at, for an object that may be nil, of another kind, or without a name.
func (t target) of(ctx context.Context, what string, obj Object) (*meta.RESTMapping, error) {
	if t.err != nil {
		return nil, t.err
	}
	if argument.IsNil(obj) {
		return nil, fmt.Errorf("%s %s: the object is nil", what, t.gvk.Kind)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != t.gvk {
		return nil, fmt.Errorf("%s %s: the object says that it is a %s, the handle is for %s", what, obj.GetName(), said(gvk), said(t.gvk))
	}
	if what == "create" && obj.GetName() == "" && obj.GetGenerateName() != "" {
		return t.mapping(ctx, obj.GetNamespace())
	}
	return t.at(ctx, what, keyOf(obj))
}

func said(gvk schema.GroupVersionKind) string {
	return fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion())
}

// mapping says where the kind is served, in a namespace that must fit its scope.
func (t target) mapping(ctx context.Context, namespace string) (*meta.RESTMapping, error) {
	m, err := t.anywhere(ctx, namespace)
	if err == nil && namespace == "" && m.Scope.Name() == meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s is a namespaced kind: name the namespace", t.gvk.Kind)
	}
	return m, err
}

// anywhere is mapping, but no namespace stands for all of them.
func (t target) anywhere(ctx context.Context, namespace string) (*meta.RESTMapping, error) {
	if t.err != nil {
		return nil, t.err
	}
	m, err := t.client.Mapping(ctx, t.gvk)
	if err == nil && namespace != "" && m.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s is a cluster-scoped kind: leave the namespace empty, not %q", t.gvk.Kind, namespace)
	}
	return m, err
}

// explain tells an object that is missing from a kind, or a subresource of it, that is not served (any more): the API server's
// answer to both is 404.
func (t target) explain(ctx context.Context, err error, subresource string) error {
	served := func() bool { return subresource == "" || t.client.subresource(t.gvk, subresource) != nil }
	// Of a custom resource without such a subresource the API server says that the object is not found, by its name.
	if !apierrors.IsNotFound(err) || namesObject(err) && served() {
		return err
	}
	t.client.Forget(t.gvk)
	var not *NotServedError
	switch _, asked := t.client.Mapping(ctx, t.gvk); {
	case errors.As(asked, &not):
		return not
	case asked == nil && !served():
		return &NotServedError{Kind: t.gvk, Subresource: subresource, Host: t.client.config.Host}
	}
	return err
}

// namesObject says whether it is the API server's answer for an object that is missing, and not for a path: that is no Status,
// and what client-go makes of it has this cause.
func namesObject(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	d := s.Status().Details
	return d != nil && d.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
