// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/webhook"
)

// PolicyOptions configures SameAsPolicy. Examples is required.
type PolicyOptions struct {
	// Examples are objects that the server's schema accepts. Their namespaces must exist, and their
	// names be free. Include objects that the webhook rejects: the variants of other examples use
	// their values, too.
	Examples []client.Object
	// Variants is the number of variants of each example. Default: 200.
	Variants int
	// Seed makes the variants of a failed test again; the failure prints it. Default: 0, a random
	// one.
	Seed int64
}

// sameTimeout limits SameAsPolicy.
const sameTimeout = 10 * time.Minute

// SameAsPolicy fails the test if the admission webhooks of hooks and its policies (Webhooks.Policy)
// decide differently about a request. The API server of cfg evaluates both, one after the other, in
// dry runs. Use a server of package envtest: it must evaluate policies and reach a listener of the
// test. The server must not have these policies, or other webhooks for these kinds.
//
// The requests create each example and its variants, with "-new" behind their names, change an
// example to each of its variants, and delete it. A variant differs from its example in up to three
// fields. Neither the status nor metadata change, except labels and annotations. Values are random,
// from other examples, or close to literals in the policies' CEL expressions. Variants that the
// server rejects without webhooks and policies are skipped. The wording of a rejection is not
// compared.
//
// The failure shows the fewest changes that cause a difference, both answers, and the object. The
// test also fails if both allow all requests without a change, because that compares nothing.
//
// The functions of hooks run without a manager, so they cannot read its cache. SameAsPolicy creates
// the examples and deletes them at the end.
func SameAsPolicy(t testing.TB, cfg *rest.Config, hooks *webhook.Webhooks, o PolicyOptions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sameTimeout)
	defer cancel()
	o.Seed = cmp.Or(o.Seed, rand.Int63()) //nolint:gosec // for tests
	text, err := compare(ctx, cfg, hooks, o)
	switch {
	case err != nil:
		t.Errorf("the webhooks and the policies cannot be compared: %v (seed %d)", err, o.Seed)
	case text != "":
		t.Errorf("%s (seed %d)", text, o.Seed)
	}
}

// compare returns a text about differences, or "".
func compare(ctx context.Context, cfg *rest.Config, hooks *webhook.Webhooks, o PolicyOptions) (text string, err error) {
	objects, err := hooks.Manifests()
	if err != nil {
		return "", err
	}
	examples, err := examplesOf(hooks.Scheme(), o.Examples)
	if err != nil {
		return "", err
	}
	s, err := newServer(cfg, hooks, objects)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer func() { err = errors.Join(err, s.forget(ctx)) }()
	if err := s.store(ctx, examples); err != nil {
		return "", err
	}
	v := newVariants(hooks.Scheme(), s.policies, examples, o.Seed)
	all := samplesOf(examples, v, cmp.Or(o.Variants, 200))
	found, effect, err := s.differences(ctx, all)
	switch {
	case err != nil:
		return "", err
	case !effect:
		return "", errors.New("each request is allowed without a change, by both; correct the rules, or add an example that is rejected or changed")
	}
	// Fewer changes may be enough.
	for parts := partsOf(found); len(parts) > 0; parts = partsOf(found) {
		smaller, _, err := s.differences(ctx, parts)
		if err != nil {
			return "", err
		}
		if len(smaller) == 0 {
			break
		}
		found = append(smaller, found...)
	}
	return describe(found, len(all)), nil
}

func examplesOf(scheme *runtime.Scheme, objects []client.Object) (all []*unstructured.Unstructured, err error) {
	if len(objects) == 0 {
		return nil, errors.New("PolicyOptions.Examples is empty; add an object that the server accepts")
	}
	for i, obj := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("PolicyOptions.Examples[%d]: %w", i, err)
		}
		u := (&unstructured.Unstructured{Object: content}).DeepCopy()
		if kinds, _, err := scheme.ObjectKinds(obj); err == nil {
			u.SetGroupVersionKind(kinds[0])
		}
		switch {
		case u.GetKind() == "" || u.GetAPIVersion() == "":
			return nil, fmt.Errorf("PolicyOptions.Examples[%d]: the kind of %T is unknown; add the type to the scheme", i, obj)
		case u.GetName() == "":
			return nil, fmt.Errorf("PolicyOptions.Examples[%d]: it has no name", i)
		}
		delete(u.Object, "status")
		all = append(all, u)
	}
	return all, nil
}
