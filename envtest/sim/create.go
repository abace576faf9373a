// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

func (s *Server) createLocked(r *Request, t *table) (*http.Response, error) {
	if err := r.writeOptions("CreateOptions"); err != nil {
		return nil, err
	}
	u, err := r.decode(t)
	if err != nil {
		return nil, err
	}
	rules.Wipe(u)
	if err := r.matchNamespace(u); err != nil {
		return nil, err
	}
	created, err := s.insertLocked(r, t, u)
	if err != nil {
		return nil, err
	}
	return r.answer(http.StatusCreated, created)
}

// insertLocked stores u as a new object and takes ownership of it. It returns the stored object, or
// what would be stored in a dry run.
func (s *Server) insertLocked(r *Request, t *table, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r.dedupOwners(u)
	if err := s.manageLocked(r, t, nil, u); err != nil {
		return nil, err
	}
	if t.Terminating {
		return nil, apierrors.NewForbidden(t.GVR().GroupResource(), u.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
	}
	if err := s.admitLocked(r, t, u); err != nil {
		return nil, err
	}
	u, err := s.mutatedLocked(r, t, nil, u)
	if err != nil {
		return nil, err
	}
	s.bearLocked(r, t, u)
	blank, err := t.empty()
	if err != nil {
		return nil, err
	}
	rules.PrepareCreate(&t.Definition, u, blank)
	if err := rules.Complete(&t.Definition, u, nil, &s.addresses); err != nil {
		return nil, err
	}
	if errs := rules.Validate(&t.Definition, u, nil, r.Subresource); len(errs) > 0 {
		return nil, t.Invalid(u, errs)
	}
	r.warnFinalizers(t, u, nil)
	if err := s.approveLocked(r.attributesOf(t, nil, u)); err != nil {
		return nil, err
	}
	if v, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64); r.Verb == "create" && !r.dryRun && err == nil && v != 0 {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	if live := t.objects[keyOf(u)]; live != nil {
		return nil, t.exists(live, u)
	}
	if r.dryRun {
		if r.Verb != "update" && r.Verb != "create" { // these are answered with the version in them
			u.SetResourceVersion("")
		}
		return u, nil
	}
	return s.commitLocked(r, t, nil, u)
}

func (t *table) exists(live, u *unstructured.Unstructured) error {
	err := apierrors.NewAlreadyExists(t.GVR().GroupResource(), u.GetName())
	if u.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(t.GVR().GroupResource(), u.GetName(), 1)
	}
	if live.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// identifyLocked gives a new object its uid, its creation time and, if requested, its name.
func (s *Server) identifyLocked(t *table, u *unstructured.Unstructured) {
	if u.GetUID() == "" {
		u.SetUID(s.newUIDLocked())
	}
	u.SetCreationTimestamp(metav1.Now())
	prefix := u.GetGenerateName()
	if prefix == "" || u.GetName() != "" {
		return
	}
	const longest = 63 - suffixLength
	if len(prefix) > longest {
		prefix = prefix[:longest]
	}
	for range 8 {
		s.names++
		u.SetName(prefix + suffix(s.names))
		if t.objects[keyOf(u)] == nil {
			return
		}
	}
}

// identity is what the server gives a new object.
type identity struct {
	uid     types.UID
	name    string
	created metav1.Time
}

// bearLocked identifies the object that a request creates. It is the same each time that the
// request is served, unless its generated name was taken meanwhile.
func (s *Server) bearLocked(r *Request, t *table, u *unstructured.Unstructured) {
	if r.born.uid != "" && t.objects[key{u.GetNamespace(), r.born.name}] == nil {
		u.SetUID(r.born.uid)
		u.SetName(r.born.name)
		u.SetCreationTimestamp(r.born.created)
		return
	}
	s.identifyLocked(t, u)
	r.born = identity{u.GetUID(), u.GetName(), u.GetCreationTimestamp()}
}

// newUIDLocked returns the next uid: a counter in the form of a UUID, so that tests repeat. Its
// first digits differ much from one to the next, as in random UUIDs.
func (s *Server) newUIDLocked() types.UID {
	s.uids++
	return uidOf(s.uids, 8)
}

// uidOf returns the n-th uid of a family.
func uidOf(n, family int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4000-%x000-%012x", uint32(n)*0x9e3779b1, family, n)) //nolint:gosec // it may wrap
}

// newReviewUIDLocked returns the uid of a review that a webhook answers. It is no object's.
func (s *Server) newReviewUIDLocked() types.UID {
	s.reviews++
	return uidOf(s.reviews, 9)
}

const (
	suffixLength   = 5
	suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789" // the real server's
)

// suffix returns the n-th suffix of generated names. It repeats after 27^5 names.
func suffix(n int) string {
	const period, step = 27 * 27 * 27 * 27 * 27, 8_675_309 // step is coprime to 27
	n = n % period * step % period
	var b [suffixLength]byte
	for i := range b {
		b[i] = suffixAlphabet[n%len(suffixAlphabet)]
		n /= len(suffixAlphabet)
	}
	return string(b[:])
}
