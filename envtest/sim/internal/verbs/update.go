// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/admission"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

func (a *API) update(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	if err := r.WriteOptions("UpdateOptions"); err != nil {
		return nil, err
	}
	u, err := r.Decode(t)
	if err != nil {
		return nil, err
	}
	if err := r.MatchNamespace(u); err != nil {
		return nil, err
	}
	if err := r.MatchName(u); err != nil {
		return nil, err
	}
	return a.write(r, t, live, u)
}

// write answers a request that replaces live by u. If live is nil, it creates u, provided
// that the verb may create.
func (a *API) write(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) (*http.Response, error) {
	uid := u.GetUID()
	switch {
	case live != nil:
		updated, err := a.replace(r, t, live, u)
		if err != nil {
			return nil, err
		}
		return r.Answer(http.StatusOK, updated)
	case r.Subresource != "", r.Verb != "apply" && (r.Verb != "update" || !t.CreateOnUpdate):
		return nil, t.NotFound(r.Name)
	case uid != "":
		return nil, wrongUID(t, r, u, "")
	default:
		created, err := a.insert(r, t, u)
		if err != nil {
			return nil, err
		}
		return r.Answer(http.StatusCreated, created)
	}
}

// wrongUID is the error for an object u with another uid than the live one.
func wrongUID(t *store.Table, r *request.Request, u *unstructured.Unstructured, live types.UID) error {
	key := t.StorageKey(u)
	if r.DryRun {
		key = strings.TrimPrefix(key, "/registry")
	}
	return t.Conflict(r.Name, "StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
		"Precondition failed: UID in precondition: %v, UID in object meta: %v", key, u.GetUID(), live)
}

// replace makes u the new state of live and takes ownership of u. It returns the stored
// object, or what would be stored in a dry run.
func (a *API) replace(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if uid := u.GetUID(); r.Verb == "update" && uid != "" && uid != live.GetUID() {
		return nil, wrongUID(t, r, u, live.GetUID())
	}
	r.DedupOwners(u)
	if err := a.managers.Manage(r, t, live, u); err != nil {
		return nil, err
	}
	u, err := a.admission.Mutated(r, t, live, u)
	if err != nil {
		return nil, err
	}
	return a.change(r, t, live, u)
}

// change stores u, which has its owners, as the new state of live.
func (a *API) change(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := checkVersion(t, r, live, u); err != nil {
		return nil, err
	}
	if r.Subresource == "" {
		if err := rules.Complete(&t.Definition, u, live, &a.addresses); err != nil {
			return nil, err
		}
	}
	u.SetGeneration(live.GetGeneration())
	rules.PrepareUpdate(&t.Definition, u, live, r.Subresource)
	rules.KeepIdentity(u, live)
	if errs := rules.Validate(&t.Definition, u, live, r.Subresource); len(errs) > 0 {
		return nil, t.Invalid(u, errs)
	}
	managed.RevertTimes(live, u)
	r.WarnFinalizers(t, u, live)
	if r.Subresource != "scale" {
		if err := a.admission.Approve(admission.AttributesOf(r, t, live, u)); err != nil {
			return nil, err
		}
	}
	if jsonvalue.Equal(u.Object, live.Object) && r.Empties+t.Empties[store.KeyOf(live)] == "" {
		return live, nil
	}
	if r.DryRun {
		return u, nil
	}
	if rules.Removable(live, u) {
		u.SetResourceVersion(live.GetResourceVersion())
		a.store.Remove(t, u)
		return u, nil
	}
	return a.converter.Commit(r, t, live, u)
}

// checkVersion is optimistic concurrency. It gives u the live version.
func checkVersion(t *store.Table, r *request.Request, live, u *unstructured.Unstructured) error {
	has := u.GetResourceVersion()
	if has == "0" {
		has = ""
	}
	if has != "" {
		if _, err := strconv.ParseUint(has, 10, 64); err != nil {
			return err
		}
	}
	switch {
	case has == live.GetResourceVersion():
	case has != "":
		return t.Conflict(r.Name, "the object has been modified; please apply your changes to the latest version and try again")
	case t.Conditional:
		return apierrors.NewInvalid(schema.GroupKind{Group: t.Group, Kind: t.Name}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	u.SetResourceVersion(live.GetResourceVersion())
	return nil
}
