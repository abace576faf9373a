// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

func (s *Server) deleteLocked(r *Request, t *table, live *unstructured.Unstructured) (*http.Response, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, t.NotFound(r.Name)
	}
	if err := s.dismissLocked(r, t, live, options); err != nil {
		return nil, err
	}
	last, gone, err := s.endLocked(t, t.objects[keyOf(live)], options)
	if err != nil {
		return nil, err
	}
	last = t.like(last, live)
	code := http.StatusOK
	if orphan := options.OrphanDependents; !gone && orphan != nil && !*orphan { //nolint:staticcheck // clients still send it
		code = http.StatusAccepted
	}
	if t.Returned || !gone {
		return r.answer(code, last)
	}
	return r.answer(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: last.GetName(), Group: t.Group, Kind: t.Name, UID: last.GetUID()},
	})
}

// endLocked deletes an object, or marks it as being deleted if it has finalizers or a grace period.
// It returns the last state and whether the object is gone.
func (s *Server) endLocked(t *table, live *unstructured.Unstructured, o *metav1.DeleteOptions) (*unstructured.Unstructured, bool, error) {
	if t.IsNamespaces() {
		return s.endNamespaceLocked(t, live, o)
	}
	if err := rules.CheckPreconditions(&t.Definition, live, o); err != nil {
		return nil, false, err
	}
	grace, graceful, pending := rules.GracePeriod(&t.Definition, live, o)
	if pending {
		return live, false, nil
	}
	dry := len(o.DryRun) > 0
	if t.GVR() == kinds.CRDs && live.GetDeletionTimestamp() == nil {
		return s.endCRDLocked(t, live, dry), false, nil
	}
	finalizers := rules.DeletionFinalizers(&t.Definition, live, o)
	if !graceful && len(finalizers) == 0 {
		if dry {
			return live, true, nil
		}
		s.removeLocked(t, live)
		return withVersion(live, s.version), true, nil
	}
	u := live.DeepCopy()
	u.SetFinalizers(finalizers)
	if graceful && live.GetDeletionTimestamp() != nil {
		rules.Shorten(u, grace)
	} else {
		rules.MarkDeleted(u, grace)
	}
	if !jsonvalue.Equal(u.Object, live.Object) && !dry {
		u = s.appendLocked(t, modified, live, u)
	}
	if len(finalizers) > 0 || grace > 0 {
		return u, false, nil
	}
	if dry {
		return u, true, nil
	}
	s.removeLocked(t, u)
	return withVersion(u, s.version), true, nil
}

// deleteOptions reads the options of a deletion from the body or, without one, from the query.
func (r *Request) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if len(r.body) > 0 {
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), r.mediaType())
		if !ok {
			return nil, unknownFormat(runtime.ContentTypeProtobuf)
		}
		as := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		obj, _, err := scheme.Codecs.DecoderToVersion(info.Serializer, as.GroupVersion()).Decode(r.body, &as, o)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if obj != o {
			return nil, apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
	} else if len(r.Query) > 0 {
		if err := scheme.ParameterCodec.DecodeParameters(r.Query, schema.GroupVersion{Version: "v1"}, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	o.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	if errs := validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return o, nil
}

// deleteCollectionLocked deletes the objects that a list would return, and answers that list.
func (s *Server) deleteCollectionLocked(r *Request, t *table) (*http.Response, error) {
	if !t.Collection {
		return nil, notAllowed()
	}
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	list, where, err := r.selection(t)
	if err != nil {
		return nil, err
	}
	p, err := s.pagesLocked(list, where)
	if err != nil {
		return nil, err
	}
	if err := s.showLocked(&r.answers, t, p.items...); err != nil {
		return nil, err
	}
	resp, err := r.answerPage(t, p)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	targets := slices.DeleteFunc(slices.Clone(p.items), func(listed *unstructured.Unstructured) bool {
		return t.objects[keyOf(listed)] == nil // gone since the listed version
	})
	// All webhooks answer before the first deletion, because the request may be served again.
	allowed, err := s.dismissAllLocked(r, t, targets, options)
	if p := (*pending)(nil); errors.As(err, &p) {
		return nil, err
	}
	for _, listed := range targets[:allowed] {
		live := t.objects[keyOf(listed)]
		if live == nil {
			continue // deleted with its owner
		}
		if _, _, err := s.endLocked(t, live, options.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// deletionPage is the number of objects in a page of a deletecollection without a limit.
const deletionPage = 10_000

// pagesLocked returns a page of the client's limit or, without one, all pages as one. A list with
// pages shows the exact version that it names.
func (s *Server) pagesLocked(o *internalversion.ListOptions, where *selection) (page, error) {
	if o.Limit != 0 {
		return s.pageLocked(o, where)
	}
	o.Limit = deletionPage
	all, err := s.pageLocked(o, where)
	for next := all; err == nil && next.metadata.Continue != ""; {
		o.Continue, o.ResourceVersion, o.ResourceVersionMatch = next.metadata.Continue, "", ""
		next, err = s.pageLocked(o, where)
		all.items = append(all.items, next.items...)
	}
	return all, err
}

// dismissAllLocked returns how many objects can be deleted before the first one that a webhook does
// not let go, and its error.
func (s *Server) dismissAllLocked(r *Request, t *table, list []*unstructured.Unstructured, options *metav1.DeleteOptions) (int, error) {
	for i, o := range list {
		live, err := t.present(t.objects[keyOf(o)])
		if err == nil {
			err = s.dismissLocked(r, t, live, options)
		}
		if err != nil {
			return i, err
		}
	}
	return len(list), nil
}
