// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// applied returns old with the applied configuration and the managedFields that result.
// Without old it returns a new object.
func (a *API) applied(p *patch, t *store.Table, old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields, err := a.managers.Manager(t, p.request.Subresource)
	if err != nil {
		return nil, err
	}
	live, err := p.codec.Empty()
	if err != nil {
		return nil, err
	}
	if old != nil {
		live = old.DeepCopy()
	}
	change := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(p.request.Body, &change.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	obj, err := fields.Apply(live, change, p.options.FieldManager, p.options.Force != nil && *p.options.Force)
	if pends := a.managers.Pending(); pends != nil {
		return nil, pends
	}
	if err != nil {
		return nil, err
	}
	if err := p.duplicates(); err != nil {
		return nil, err
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("sim: an apply made a %T", obj)
	}
	p.request.Empties = emptyMetadata(t, u)
	if u, err = p.codec.Normal(u.DeepCopy()); err != nil {
		return nil, err
	}
	if old == nil {
		if u.GetUID() != "" {
			return nil, t.Conflict(p.request.Name, "uid mismatch: the provided object specified uid %s, and no existing object was found", u.GetUID())
		}
		rules.Wipe(u)
	}
	return u, nil
}

// emptyMetadata names the empty lists and maps in the metadata of an applied custom object. The
// real server stores them and hides them from reads. So this apply and the next write make a
// version, although nothing seems to change.
func emptyMetadata(t *store.Table, u *unstructured.Unstructured) string {
	if t.BuiltIn {
		return ""
	}
	metadata := jsonvalue.Object(u.Object, "metadata")
	var names []string
	for _, name := range []string{"annotations", "finalizers", "labels", "ownerReferences"} {
		value, ok := metadata[name]
		list, isList := value.([]any)
		fields, isMap := value.(map[string]any)
		if ok && (value == nil || isList && len(list) == 0 || isMap && len(fields) == 0) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

func (p *patch) duplicates() error {
	if !p.looksAtFields() {
		return nil
	}
	err := yaml.UnmarshalStrict(p.request.Body, &map[string]any{})
	switch {
	case err == nil:
	case p.options.FieldValidation == metav1.FieldValidationStrict:
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
	default:
		p.request.WarnAll([]error{err})
	}
	return nil
}
