// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

func (s *Server) updateLocked(r *Request, t *table, live *unstructured.Unstructured) (*http.Response, error) {
	if err := r.writeOptions("UpdateOptions"); err != nil {
		return nil, err
	}
	u, err := r.decode(t)
	if err != nil {
		return nil, err
	}
	if err := r.matchNamespace(u); err != nil {
		return nil, err
	}
	if err := r.matchName(u); err != nil {
		return nil, err
	}
	return s.writeLocked(r, t, live, u)
}

// writeLocked answers a request that replaces live by u. If live is nil, it creates u, provided
// that the verb may create.
func (s *Server) writeLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*http.Response, error) {
	uid := u.GetUID()
	switch {
	case live != nil:
		updated, err := s.replaceLocked(r, t, live, u)
		if err != nil {
			return nil, err
		}
		return r.answer(http.StatusOK, updated)
	case r.Subresource != "", r.Verb != "apply" && (r.Verb != "update" || !t.CreateOnUpdate):
		return nil, t.NotFound(r.Name)
	case uid != "":
		return nil, t.wrongUID(r, u, "")
	default:
		created, err := s.insertLocked(r, t, u)
		if err != nil {
			return nil, err
		}
		return r.answer(http.StatusCreated, created)
	}
}

// wrongUID is the error for an object u with another uid than the live one.
func (t *table) wrongUID(r *Request, u *unstructured.Unstructured, live types.UID) error {
	key := t.StorageKey(u)
	if r.dryRun {
		key = strings.TrimPrefix(key, "/registry")
	}
	return t.Conflict(r.Name, "StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
		"Precondition failed: UID in precondition: %v, UID in object meta: %v", key, u.GetUID(), live)
}

// replaceLocked makes u the new state of live and takes ownership of u. It returns the stored
// object, or what would be stored in a dry run.
func (s *Server) replaceLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if uid := u.GetUID(); r.Verb == "update" && uid != "" && uid != live.GetUID() {
		return nil, t.wrongUID(r, u, live.GetUID())
	}
	r.dedupOwners(u)
	if err := s.manageLocked(r, t, live, u); err != nil {
		return nil, err
	}
	u, err := s.mutatedLocked(r, t, live, u)
	if err != nil {
		return nil, err
	}
	return s.changeLocked(r, t, live, u)
}

// changeLocked stores u, which has its owners, as the new state of live.
func (s *Server) changeLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := t.checkVersion(r, live, u); err != nil {
		return nil, err
	}
	if r.Subresource == "" {
		if err := rules.Complete(&t.Definition, u, live, &s.addresses); err != nil {
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
	r.warnFinalizers(t, u, live)
	if r.Subresource != "scale" {
		if err := s.approveLocked(r.attributesOf(t, live, u)); err != nil {
			return nil, err
		}
	}
	if jsonvalue.Equal(u.Object, live.Object) && r.empties+t.empties[keyOf(live)] == "" {
		return live, nil
	}
	if r.dryRun {
		return u, nil
	}
	if rules.Removable(live, u) {
		u.SetResourceVersion(live.GetResourceVersion())
		s.removeLocked(t, u)
		return u, nil
	}
	return s.commitLocked(r, t, live, u)
}

// checkVersion is optimistic concurrency. It gives u the live version.
func (t *table) checkVersion(r *Request, live, u *unstructured.Unstructured) error {
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

// matchNamespace gives u the namespace of the request. Another namespace is an error.
func (r *Request) matchNamespace(u *unstructured.Unstructured) error {
	switch {
	case u.GetNamespace() == r.Namespace:
	case u.GetNamespace() == "", r.Namespace == "":
		u.SetNamespace(r.Namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// matchName returns an error unless the object has the name of the request.
func (r *Request) matchName(u *unstructured.Unstructured) error {
	if u.GetName() == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name))
	}
	if u.GetName() != r.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), r.Name))
	}
	return nil
}
