// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/why"
)

// explainUnwatched looks at the API server for an object whose kind no controller watches, and
// explains its controlling owner, if one watches that.
func (m *Manager) explainUnwatched(ctx context.Context, o why.Object) []why.Answer {
	a := why.Answer{Reason: why.NotWatched, Cause: fmt.Sprintf("no controller of this process watches the kind %q", o.Kind)}
	found, err := m.live(ctx, o)
	switch {
	case apierrors.IsNotFound(err):
		a.Cause += ", and the API server has no such object"
		a.Remedy = "correct the name or the namespace"
		return []why.Answer{a}
	case err != nil:
		a.Evidence = []string{"the object was not looked for at the API server: " + err.Error()}
		a.Remedy = "correct the kind, or add a source for it to a controller with Watch"
		return []why.Answer{a}
	}
	a.Evidence = []string{"the object is at version " + found.ResourceVersion}
	owner := metav1.GetControllerOf(found)
	if owner == nil {
		a.Cause += "; the object has no controlling owner"
		a.Remedy = "add a source for the kind to a controller with Watch, or set the object's owner"
		return []why.Answer{a}
	}
	gvk, namespace := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), o.Namespace
	if mapping, err := m.client.Mapping(ctx, gvk); err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	of := why.Object{Kind: strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, "."), Namespace: namespace, Name: owner.Name, Values: true}
	a.Cause += fmt.Sprintf("; its controlling owner is %s %s", owner.Kind, strings.TrimPrefix(of.Key().String(), "/"))
	a.Remedy = "ask for the owner"
	return append([]why.Answer{a}, m.explainWatched(ctx, of)...)
}

// live reads an object's metadata.
func (m *Manager) live(ctx context.Context, o why.Object) (*metav1.PartialObjectMetadata, error) {
	mapping, err := m.mapping(ctx, o)
	if err != nil {
		return nil, err
	}
	c, err := m.client.Metadata()
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.Resource(mapping.Resource).Get(ctx, o.Name, metav1.GetOptions{})
	}
	return c.Resource(mapping.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
}

// mapping finds the kind of an object in the scheme, in the first version that the API server has.
func (m *Manager) mapping(ctx context.Context, o why.Object) (found *meta.RESTMapping, err error) {
	scheme := m.client.Scheme()
	err = fmt.Errorf("the scheme has no kind %q; write it with its version and group, such as Website.v1.example.com", o.Kind)
	if kind, _ := schema.ParseKindArg(o.Kind); kind != nil {
		return m.client.Mapping(ctx, *kind)
	}
	for _, version := range scheme.PrioritizedVersionsAllGroups() {
		for kind := range scheme.KnownTypes(version) {
			if !o.Is(version.WithKind(kind)) {
				continue
			}
			if found, err = m.client.Mapping(ctx, version.WithKind(kind)); err == nil {
				return found, nil
			}
		}
	}
	return nil, err
}
