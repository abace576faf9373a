// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/client"
)

type kind[T client.Object] struct {
	schema.GroupVersionKind

	of reflect.Type // the struct that T points to
}

func kindOf[T client.Object](scheme *runtime.Scheme) (k kind[T], err error) {
	pointer := reflect.TypeFor[T]()
	if pointer.Kind() != reflect.Pointer || pointer.Elem().Kind() != reflect.Struct {
		return k, fmt.Errorf("the type %s is no pointer to a struct; use the Go type of the kind", pointer)
	}
	k.of = pointer.Elem()
	if scheme == nil {
		return k, nil // Validate has reported it
	}
	kinds, _, err := scheme.ObjectKinds(k.zero())
	switch {
	case err != nil || len(kinds) == 0:
		return k, fmt.Errorf("Options.Scheme does not have the type %s; add it to the scheme, or use Mutating or Validating for objects without a Go type", pointer)
	case len(kinds) > 1:
		return k, fmt.Errorf("the type %s has several kinds in Options.Scheme: %v; use Mutating or Validating", pointer, kinds)
	}
	k.GroupVersionKind = kinds[0]
	return k, nil
}

func (k kind[T]) zero() T { return reflect.New(k.of).Interface().(T) } //nolint:forcetypeassert // kindOf has tested it

// decode returns an error that is a status and rejects the request.
func (k kind[T]) decode(request *admissionv1.AdmissionRequest, raw runtime.RawExtension) (T, error) {
	obj := k.zero()
	if got := request.Kind; got != (metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}) {
		return obj, apierrors.NewBadRequest(fmt.Sprintf("the webhook was called with a %s, but its function takes a %s; correct the rules of its configuration",
			text(schema.GroupVersionKind{Group: got.Group, Version: got.Version, Kind: got.Kind}), text(k.GroupVersionKind)))
	}
	if len(raw.Raw) == 0 {
		return obj, apierrors.NewBadRequest(fmt.Sprintf("the request to %s a %s has no object; correct the rules of the webhook's configuration", request.Operation, text(k.GroupVersionKind)))
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw.Raw, obj); err != nil {
		return obj, apierrors.NewBadRequest(fmt.Sprintf("the webhook cannot decode the %s %q as %T: %v", text(k.GroupVersionKind), request.Name, obj, err))
	}
	return obj, nil
}

// checkOperation returns an error that is a status and rejects a request whose operation is
// unknown. It may change an object, and no function would see it.
func checkOperation(request *admissionv1.AdmissionRequest) error {
	switch request.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return nil
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the operation %q of the AdmissionReview is unknown; it must be CREATE, UPDATE, DELETE or CONNECT", request.Operation))
	}
}

// text returns a kind as in kubectl: Kind.version.group.
func text(k schema.GroupVersionKind) string {
	return strings.TrimSuffix(k.Kind+"."+k.Version+"."+k.Group, ".")
}

// registration fills in the defaults of Name and Rules.
func (k kind[T]) registration(o *Options, verb string, r Registration, operations []admissionregistrationv1.OperationType) Registration {
	plural := o.plural(k.GroupKind())
	if r.Name == "" {
		group := k.Group
		if group == "" {
			group = "core"
		}
		r.Name = verb + "." + plural + "." + group
	}
	if r.Rules == nil {
		r.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{k.Group}, APIVersions: []string{k.Version}, Resources: []string{plural}},
		}}
	}
	return r
}
