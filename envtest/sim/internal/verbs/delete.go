// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
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

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

func (a *API) delete(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	options, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, t.NotFound(r.Name)
	}
	if err := a.dismiss(r, t, live, options); err != nil {
		return nil, err
	}
	last, gone, err := a.controllers.Delete(t, t.Objects[store.KeyOf(live)], options)
	if err != nil {
		return nil, err
	}
	last = t.ShowLike(last, live)
	code := http.StatusOK
	if orphan := options.OrphanDependents; !gone && orphan != nil && !*orphan { //nolint:staticcheck // clients still send it
		code = http.StatusAccepted
	}
	if t.Returned || !gone {
		return r.Answer(code, last)
	}
	return r.Answer(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: last.GetName(), Group: t.Group, Kind: t.Name, UID: last.GetUID()},
	})
}

// deleteOptions reads the options of a deletion from the body or, without one, from the query.
func deleteOptions(r *request.Request) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if len(r.Body) > 0 {
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), r.MediaType())
		if !ok {
			return nil, request.UnknownFormat(runtime.ContentTypeProtobuf)
		}
		as := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		obj, _, err := scheme.Codecs.DecoderToVersion(info.Serializer, as.GroupVersion()).Decode(r.Body, &as, o)
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

// deleteCollection deletes the objects that a list would return, and answers that list.
func (a *API) deleteCollection(r *request.Request, t *store.Table) (*http.Response, error) {
	if !t.Collection {
		return nil, request.NotAllowed()
	}
	options, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	list, where, err := selectionOf(r, t)
	if err != nil {
		return nil, err
	}
	p, err := a.pages(list, where)
	if err != nil {
		return nil, err
	}
	if err := a.converter.Show(&r.Answers, t, p.items...); err != nil {
		return nil, err
	}
	resp, err := answerPage(r, t, p)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	targets := slices.DeleteFunc(slices.Clone(p.items), func(listed *unstructured.Unstructured) bool {
		return t.Objects[store.KeyOf(listed)] == nil // gone since the listed version
	})
	// All webhooks answer before the first deletion, because the request may be served again.
	allowed, err := a.dismissAll(r, t, targets, options)
	if webhook.IsPending(err) {
		return nil, err
	}
	for _, listed := range targets[:allowed] {
		live := t.Objects[store.KeyOf(listed)]
		if live == nil {
			continue // deleted with its owner
		}
		if _, _, err := a.controllers.Delete(t, live, options.DeepCopy()); err != nil {
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

// pages returns a page of the client's limit or, without one, all pages as one. A list with
// pages shows the exact version that it names.
func (a *API) pages(o *internalversion.ListOptions, where *selection) (page, error) {
	if o.Limit != 0 {
		return a.page(o, where)
	}
	o.Limit = deletionPage
	all, err := a.page(o, where)
	for next := all; err == nil && next.metadata.Continue != ""; {
		o.Continue, o.ResourceVersion, o.ResourceVersionMatch = next.metadata.Continue, "", ""
		next, err = a.page(o, where)
		all.items = append(all.items, next.items...)
	}
	return all, err
}

// dismissAll returns how many objects can be deleted before the first one that a webhook does
// not let go, and its error.
func (a *API) dismissAll(r *request.Request, t *store.Table, list []*unstructured.Unstructured, options *metav1.DeleteOptions) (int, error) {
	for i, o := range list {
		live, err := t.Present(t.Objects[store.KeyOf(o)])
		if err == nil {
			err = a.dismiss(r, t, live, options)
		}
		if err != nil {
			return i, err
		}
	}
	return len(list), nil
}

// dismiss asks the webhooks about the deletion of an object that t shows as live, if the object can
// be deleted.
func (a *API) dismiss(r *request.Request, t *store.Table, live *unstructured.Unstructured, options *metav1.DeleteOptions) error {
	if !a.admission.Configured() {
		return nil
	}
	if _, _, pends := rules.GracePeriod(&t.Definition, live, options); pends {
		return nil
	}
	dry := options.DeepCopy()
	dry.DryRun = []string{metav1.DryRunAll}
	if _, _, err := a.controllers.Delete(t, t.Objects[store.KeyOf(live)], dry); err != nil {
		return err
	}
	return a.admission.Dismiss(r, t, live, options)
}
