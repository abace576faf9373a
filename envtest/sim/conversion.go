// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// conversionTimeout is the real server's.
const conversionTimeout = 30 * time.Second

// conversionReview is a ConversionReview of any version.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *conversionRequest  `json:"request,omitempty"`
	Response        *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               types.UID                    `json:"uid"`
	DesiredAPIVersion string                       `json:"desiredAPIVersion"`
	Objects           []*unstructured.Unstructured `json:"objects"`
}

type conversionResponse struct {
	UID              types.UID         `json:"uid"`
	ConvertedObjects []json.RawMessage `json:"convertedObjects"`
	Result           metav1.Status     `json:"result"`
}

// convertWith sets how the objects are converted. Objects that were converted in another way are
// forgotten.
func (s *store) convertWith(c *kinds.Conversion) {
	if jsonvalue.Equal(s.conversion, c) {
		return
	}
	s.conversion, s.shown = c, map[*unstructured.Unstructured]map[string]*unstructured.Unstructured{}
	s.encodings = map[*unstructured.Unstructured]map[wire.Form][]byte{}
}

// target is a version of a custom kind.
type target struct {
	store   *store
	version schema.GroupVersion
	schema  crdschema.Schema // nil: none, or the version is not served
}

func (t *table) target() target { return target{t.store, t.GV(), t.Schema} }

// storageLocked returns the version in which the objects of a table are stored.
func (s *Server) storageLocked(t *table) target {
	to := target{store: t.store, version: t.stored.GroupVersion()}
	if as := s.tables[to.version.WithResource(t.Name)]; as != nil {
		to.schema = as.Schema
	}
	return to
}

// present returns a stored object in the table's version. A conversion webhook must have converted
// it before.
func (t *table) present(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch version := t.GV().String(); {
	case o == nil || o.GetAPIVersion() == version:
		return o, nil
	case t.conversion == nil:
		return relabeled(o, version), nil
	case t.shown[o][version] == nil:
		return nil, fmt.Errorf("sim: %s %q is not converted to %s; please report this", o.GetKind(), o.GetName(), version)
	default:
		return t.shown[o][version], nil
	}
}

func relabeled(o *unstructured.Unstructured, version string) *unstructured.Unstructured {
	copied := maps.Clone(o.Object)
	copied["apiVersion"] = version
	return &unstructured.Unstructured{Object: copied}
}

// keep records the converted form of a stored object.
func (s *store) keep(o, shown *unstructured.Unstructured) {
	if o == shown {
		return
	}
	if s.shown[o] == nil {
		s.shown[o] = map[string]*unstructured.Unstructured{}
	}
	s.shown[o][shown.GetAPIVersion()] = shown
}

// readLocked returns a stored object in the table's version for a request. A conversion webhook is
// called each time, as in the real server.
func (s *Server) readLocked(r *Request, t *table, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o == nil || t.conversion == nil {
		return t.present(o)
	}
	shown, err := s.convertOneLocked(&r.answers, t, o)
	if err != nil {
		return nil, r.undecodable(t, o, err)
	}
	t.keep(o, shown)
	return shown, nil
}

// showLocked makes present work for stored objects: those that were never converted are converted
// in reviews of up to maxReview objects.
func (s *Server) showLocked(known *answers, t *table, objects ...*unstructured.Unstructured) error {
	if t.conversion == nil {
		return nil
	}
	version := t.GV().String()
	missing := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return o.GetAPIVersion() == version || t.shown[o][version] != nil
	})
	for part := range slices.Chunk(missing, maxReview) {
		converted, err := s.convertLocked(known, t.target(), part)
		if err != nil {
			return err
		}
		for i, o := range converted {
			t.keep(part[i], o)
		}
	}
	return nil
}

// maxReview keeps reviews below the limits of webhooks for a request.
const maxReview = 100

// commitLocked stores u, which is in the table's version, as the next version of live. It returns
// what the table shows of it.
func (s *Server) commitLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := modified
	if live == nil {
		kind = added
	}
	if t.conversion == nil {
		after := s.appendLocked(t, kind, live, u)
		t.empties[keyOf(after)] = r.empties
		return after, nil
	}
	stored, err := s.convertLocked(&r.answers, s.storageLocked(t), []*unstructured.Unstructured{u})
	if err != nil {
		return nil, err
	}
	shown, err := s.convertOneLocked(&r.answers, t, stored[0])
	if err != nil {
		return nil, err
	}
	after := s.appendLocked(t, kind, live, stored[0])
	t.empties[keyOf(after)] = r.empties
	if shown == after {
		return after, nil
	}
	shown = withVersion(shown, s.version)
	t.keep(after, shown)
	return shown, nil
}

// like returns what t shows of a stored object that differs from an earlier one in metadata
// only. shown is what t shows of the earlier one.
func (t *table) like(o, shown *unstructured.Unstructured) *unstructured.Unstructured {
	if t.conversion == nil || o.GetAPIVersion() == t.GV().String() {
		return o
	}
	u := &unstructured.Unstructured{Object: maps.Clone(shown.Object)}
	metadata := maps.Clone(jsonvalue.Object(o.Object, "metadata"))
	for _, name := range []string{"labels", "annotations"} {
		jsonvalue.Keep(metadata, jsonvalue.Object(shown.Object, "metadata"), name)
	}
	u.Object["metadata"] = metadata
	t.keep(o, u)
	return u
}

func (s *Server) convertOneLocked(known *answers, t *table, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	list, err := s.convertLocked(known, t.target(), []*unstructured.Unstructured{o})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// convertLocked returns objects in another version. Those that are in it already stay as they are.
func (s *Server) convertLocked(known *answers, to target, list []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	version := to.version.String()
	result := slices.Clone(list)
	var asked []*unstructured.Unstructured
	for i, o := range list {
		switch {
		case o.GetAPIVersion() == version:
		case to.store.conversion == nil:
			result[i] = relabeled(o, version)
		default:
			asked = append(asked, o)
		}
	}
	if len(asked) == 0 {
		return result, nil
	}
	q, err := questionOf(asked, version)
	if err != nil {
		return nil, err
	}
	got, ok := (*known)[q]
	if !ok {
		return nil, s.askConversionLocked(q, to, asked)
	}
	converted, err := to.converted(got, asked)
	if err != nil {
		return nil, err
	}
	for i, o := range list {
		if o.GetAPIVersion() != version {
			result[i], converted = converted[0], converted[1:]
		}
	}
	return result, nil
}

// questionOf identifies a conversion by its objects, without what only the server sets: that may
// differ when the request is served again.
func questionOf(list []*unstructured.Unstructured, version string) (question, error) {
	var contents []any
	for _, o := range list {
		metadata := maps.Clone(jsonvalue.Object(o.Object, "metadata"))
		for _, name := range []string{"creationTimestamp", "deletionTimestamp", "managedFields"} {
			delete(metadata, name)
		}
		content := maps.Clone(o.Object)
		content["metadata"] = metadata
		contents = append(contents, content)
	}
	data, err := json.Marshal(contents)
	return question("convert to " + version + " " + string(data)), err
}

// askConversionLocked returns the error that makes the call.
func (s *Server) askConversionLocked(q question, to target, list []*unstructured.Unstructured) error {
	c := to.store.conversion
	at := slices.IndexFunc(c.Versions, func(v string) bool { return v == "v1" || v == "v1beta1" })
	if at < 0 {
		return errors.New("no supported conversion review versions")
	}
	uid := s.newReviewUIDLocked()
	body, err := json.Marshal(&conversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.CRDKind.Group + "/" + c.Versions[at], Kind: "ConversionReview"},
		Request:  &conversionRequest{UID: uid, DesiredAPIVersion: to.version.String(), Objects: list},
	})
	if err != nil {
		return err
	}
	webhook := backend{WebhookClientConfig: c.ClientConfig, handler: s.webhooks, timeout: conversionTimeout}
	return &pending{question: q, call: func(ctx context.Context) answer {
		body, err := webhook.post(ctx, body)
		return answer{body: body, uid: uid, version: c.Versions[at], err: err}
	}}
}

// converted reads the webhook's answer about objects, and gives each converted object the metadata
// of its original. Only labels and annotations are the webhook's.
func (to target) converted(got answer, list []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	of := list[0].GroupVersionKind()
	objects, err := got.converted()
	if err != nil {
		// It is an internal error, also if the webhook's error has a status.
		return nil, fmt.Errorf("conversion webhook for %v failed: %s", of, err.Error())
	}
	if len(objects) != len(list) {
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", of, len(objects), len(list))
	}
	result := make([]*unstructured.Unstructured, len(list))
	for i, data := range objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			return nil, err
		}
		if err := to.check(list[i], u); err != nil {
			return nil, fmt.Errorf("conversion webhook for %v returned invalid %w", of, err)
		}
		if to.schema != nil {
			to.schema.Default(u)
		}
		result[i] = u
	}
	return result, nil
}

// converted returns the objects of a ConversionReview.
func (a answer) converted() ([]json.RawMessage, error) {
	if a.err != nil {
		return nil, a.err
	}
	review := &conversionReview{}
	if err := json.Unmarshal(a.body, review); err != nil {
		return nil, err
	}
	want := schema.GroupVersionKind{Group: kinds.CRDKind.Group, Version: "v1", Kind: "ConversionReview"}
	switch got := review.GroupVersionKind(); {
	case a.version == "v1" && got != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, got)
	case review.Response == nil:
		return nil, errors.New("no response provided")
	case a.version == "v1" && review.Response.UID != a.uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", a.uid, review.Response.UID)
	case review.Response.Result.Status == metav1.StatusSuccess:
		return review.Response.ConvertedObjects, nil
	case review.Response.Result.Message != "":
		return nil, errors.New(review.Response.Result.Message)
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", review.Response.Result.Status)
}

// check returns what is wrong with a converted object, and restores its metadata.
func (to target) check(was, u *unstructured.Unstructured) error {
	is := u.GroupVersionKind()
	switch {
	case is.GroupVersion() != to.version:
		return fmt.Errorf("object at index 0: invalid groupVersion (expected %v, received %v)", to.version, is.GroupVersion())
	case is.Kind != was.GetKind():
		return fmt.Errorf("object at index 0: invalid kind (expected %v, received %v)", was.GetKind(), is.Kind)
	}
	for _, field := range []struct{ name, was, is string }{
		{"name", was.GetName(), u.GetName()}, {"namespace", was.GetNamespace(), u.GetNamespace()}, {"UID", string(was.GetUID()), string(u.GetUID())},
	} {
		if field.was != field.is {
			return fmt.Errorf("object: must have the same %s: %v != %v", field.name, field.was, field.is)
		}
	}
	if err := restore(was, u); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// restore gives u the metadata of was, except for labels and annotations.
func restore(was, u *unstructured.Unstructured) error {
	own, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return errors.New("missing metadata in converted object")
	}
	metadata := runtime.DeepCopyJSON(jsonvalue.Object(was.Object, "metadata"))
	for _, name := range []string{"labels", "annotations"} {
		values, ok := own[name].(map[string]any)
		if delete(metadata, name); own[name] == nil {
			continue
		}
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, own[name])
		}
		texts := map[string]string{}
		for k, v := range values {
			if texts[k], ok = v.(string); !ok {
				return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, k, v)
			}
		}
		errs := metavalidation.ValidateLabels(texts, field.NewPath("metadata", name))
		if name == "annotations" {
			errs = validation.ValidateAnnotations(texts, field.NewPath("metadata", "annotation"))
		}
		if len(errs) > 0 {
			return errs.ToAggregate()
		}
		metadata[name] = values
	}
	u.Object["metadata"] = metadata
	return nil
}
