// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/admission"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

func (a *API) create(r *request.Request, t *store.Table) (*http.Response, error) {
	if err := r.WriteOptions("CreateOptions"); err != nil {
		return nil, err
	}
	u, err := r.Decode(t)
	if err != nil {
		return nil, err
	}
	rules.Wipe(u)
	if err := r.MatchNamespace(u); err != nil {
		return nil, err
	}
	created, err := a.insert(r, t, u)
	if err != nil {
		return nil, err
	}
	return r.Answer(http.StatusCreated, created)
}

// insert stores u as a new object and takes ownership of it. It returns the stored object, or
// what would be stored in a dry run.
func (a *API) insert(r *request.Request, t *store.Table, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r.DedupOwners(u)
	if err := a.managers.Manage(r, t, nil, u); err != nil {
		return nil, err
	}
	if t.Terminating {
		return nil, apierrors.NewForbidden(t.GVR().GroupResource(), u.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
	}
	if err := a.admit(r, t, u); err != nil {
		return nil, err
	}
	u, err := a.admission.Mutated(r, t, nil, u)
	if err != nil {
		return nil, err
	}
	a.bear(r, t, u)
	blank, err := t.Blank()
	if err != nil {
		return nil, err
	}
	rules.PrepareCreate(&t.Definition, u, blank)
	if err := rules.Complete(&t.Definition, u, nil, &a.addresses); err != nil {
		return nil, err
	}
	if errs := rules.Validate(&t.Definition, u, nil, r.Subresource); len(errs) > 0 {
		return nil, t.Invalid(u, errs)
	}
	r.WarnFinalizers(t, u, nil)
	if err := a.admission.Approve(admission.AttributesOf(r, t, nil, u)); err != nil {
		return nil, err
	}
	if v, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64); r.Verb == "create" && !r.DryRun && err == nil && v != 0 {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if live := t.Objects[store.KeyOf(u)]; live != nil {
		return nil, exists(t, live, u)
	}
	if r.DryRun {
		if r.Verb != "update" && r.Verb != "create" { // these are answered with the version in them
			u.SetResourceVersion("")
		}
		return u, nil
	}
	return a.converter.Commit(r, t, nil, u)
}

func exists(t *store.Table, live, u *unstructured.Unstructured) error {
	err := apierrors.NewAlreadyExists(t.GVR().GroupResource(), u.GetName())
	if u.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(t.GVR().GroupResource(), u.GetName(), 1)
	}
	if live.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// bear identifies the object that a request creates. It is the same each time that the
// request is served, unless its generated name was taken meanwhile.
func (a *API) bear(r *request.Request, t *store.Table, u *unstructured.Unstructured) {
	if r.Born.UID != "" && t.Objects[store.Key{Namespace: u.GetNamespace(), Name: r.Born.Name}] == nil {
		u.SetUID(r.Born.UID)
		u.SetName(r.Born.Name)
		u.SetCreationTimestamp(r.Born.CreationTimestamp)
		return
	}
	a.store.Identify(t, u)
	r.Born = metav1.ObjectMeta{UID: u.GetUID(), Name: u.GetName(), CreationTimestamp: u.GetCreationTimestamp()}
}

// admit checks that the namespace of a new object exists and is not being deleted, if
// namespaces are served.
func (a *API) admit(r *request.Request, t *store.Table, u *unstructured.Unstructured) error {
	namespaces := a.store.Tables[kinds.Namespaces.GVR()]
	if !t.Namespaced || namespaces == nil {
		return nil
	}
	namespace := namespaces.Objects[store.Key{Name: u.GetNamespace()}]
	if namespace == nil {
		return namespaces.NotFound(u.GetNamespace())
	}
	if rules.NamespacePhase(namespace) != corev1.NamespaceTerminating {
		return nil
	}
	name := r.Name
	for _, n := range []string{u.GetName(), u.GetGenerateName(), "Unknown"} {
		if name == "" {
			name = n
		}
	}
	err := apierrors.NewForbidden(t.GVR().GroupResource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", u.GetNamespace()))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", u.GetNamespace()), Field: "metadata.namespace",
	})
	return err
}
