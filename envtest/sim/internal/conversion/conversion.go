// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// Converter converts objects between the versions of their kinds.
type Converter struct {
	store    *store.Store
	webhooks *webhook.Webhooks
}

// NewConverter returns a converter that calls webhooks.
func NewConverter(s *store.Store, w *webhook.Webhooks) *Converter {
	return &Converter{store: s, webhooks: w}
}

// target is a version of a custom kind.
type target struct {
	storage *store.Storage
	version schema.GroupVersion
	schema  crdschema.Schema // nil: none, or the version is not served
}

// targetOf returns the version of the table.
func targetOf(t *store.Table) target { return target{t.Storage, t.GV(), t.Schema} }

// storageTarget returns the version in which the objects of a table are stored.
func (c *Converter) storageTarget(t *store.Table) target {
	to := target{storage: t.Storage, version: t.StorageKind.GroupVersion()}
	if as := c.store.Tables[to.version.WithResource(t.Name)]; as != nil {
		to.schema = as.Schema
	}
	return to
}

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

// Read returns a stored object in the table's version for a request. A conversion webhook is
// called each time, as in the real server.
func (c *Converter) Read(r *request.Request, t *store.Table, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o == nil || t.Conversion == nil {
		return t.Present(o)
	}
	shown, err := c.ConvertOne(&r.Answers, t, o)
	if err != nil {
		return nil, r.Undecodable(t, o, err)
	}
	t.KeepShown(o, shown)
	return shown, nil
}

// Show makes Table.Present work for stored objects: those that were never converted are converted
// in reviews of up to maxReview objects.
func (c *Converter) Show(known *webhook.Answers, t *store.Table, objects ...*unstructured.Unstructured) error {
	if t.Conversion == nil {
		return nil
	}
	missing := slices.DeleteFunc(slices.Clone(objects), t.Presents)
	for part := range slices.Chunk(missing, maxReview) {
		converted, err := c.convert(known, targetOf(t), part)
		if err != nil {
			return err
		}
		for i, o := range converted {
			t.KeepShown(part[i], o)
		}
	}
	return nil
}

// maxReview keeps reviews below the limits of webhooks for a request.
const maxReview = 100

// Commit stores u, which is in the table's version, as the next version of live. It returns
// what the table shows of it.
func (c *Converter) Commit(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := watch.Modified
	if live == nil {
		kind = watch.Added
	}
	shown := u
	if t.Conversion != nil {
		stored, err := c.convert(&r.Answers, c.storageTarget(t), []*unstructured.Unstructured{u})
		if err != nil {
			return nil, err
		}
		u = stored[0]
		if shown, err = c.ConvertOne(&r.Answers, t, u); err != nil {
			return nil, err
		}
	}
	after := c.store.Record(t, kind, live, u)
	t.Empties[store.KeyOf(after)] = r.Empties
	if shown == after {
		return after, nil
	}
	shown = store.WithVersion(shown, c.store.Version)
	t.KeepShown(after, shown)
	return shown, nil
}

// ConvertOne returns an object in the version of a table.
func (c *Converter) ConvertOne(known *webhook.Answers, t *store.Table, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	list, err := c.convert(known, targetOf(t), []*unstructured.Unstructured{o})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// Convert returns an object in a version of its kind that may not be served any more.
func (c *Converter) Convert(known *webhook.Answers, t *store.Table, version schema.GroupVersion, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	list, err := c.convert(known, target{storage: t.Storage, version: version}, []*unstructured.Unstructured{o})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// convert returns objects in another version. Those that are in it already stay as they are.
func (c *Converter) convert(known *webhook.Answers, to target, list []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	version := to.version.String()
	result := slices.Clone(list)
	var asked []*unstructured.Unstructured
	for i, o := range list {
		switch {
		case o.GetAPIVersion() == version:
		case to.storage.Conversion == nil:
			result[i] = store.Relabeled(o, version)
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
		return nil, c.ask(q, to, asked)
	}
	converted, err := readConverted(to, got, asked)
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
func questionOf(list []*unstructured.Unstructured, version string) (webhook.Question, error) {
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
	return webhook.Question("convert to " + version + " " + string(data)), err
}

// ask returns the error that makes the call.
func (c *Converter) ask(q webhook.Question, to target, list []*unstructured.Unstructured) error {
	by := to.storage.Conversion
	at := slices.IndexFunc(by.Versions, func(v string) bool { return v == "v1" || v == "v1beta1" })
	if at < 0 {
		return errors.New("no supported conversion review versions")
	}
	uid := c.store.NewReviewUID()
	body, err := json.Marshal(&conversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.CRDKind.Group + "/" + by.Versions[at], Kind: "ConversionReview"},
		Request:  &conversionRequest{UID: uid, DesiredAPIVersion: to.version.String(), Objects: list},
	})
	if err != nil {
		return err
	}
	return c.webhooks.Ask(q, by.ClientConfig, conversionTimeout, uid, by.Versions[at], body)
}

// readConverted reads the webhook's answer about objects, and gives each converted object the
// metadata of its original. Only labels and annotations are the webhook's.
func readConverted(to target, got webhook.Answer, list []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	of := list[0].GroupVersionKind()
	objects, err := convertedObjects(got)
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
		if err := checkConverted(to, list[i], u); err != nil {
			return nil, fmt.Errorf("conversion webhook for %v returned invalid %w", of, err)
		}
		if to.schema != nil {
			to.schema.Default(u)
		}
		result[i] = u
	}
	return result, nil
}

// convertedObjects returns the objects of a ConversionReview.
func convertedObjects(got webhook.Answer) ([]json.RawMessage, error) {
	if got.Err != nil {
		return nil, got.Err
	}
	review := &conversionReview{}
	if err := json.Unmarshal(got.Body, review); err != nil {
		return nil, err
	}
	want := schema.GroupVersionKind{Group: kinds.CRDKind.Group, Version: "v1", Kind: "ConversionReview"}
	switch is := review.GroupVersionKind(); {
	case got.Version == "v1" && is != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, is)
	case review.Response == nil:
		return nil, errors.New("no response provided")
	case got.Version == "v1" && review.Response.UID != got.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", got.UID, review.Response.UID)
	case review.Response.Result.Status == metav1.StatusSuccess:
		return review.Response.ConvertedObjects, nil
	case review.Response.Result.Message != "":
		return nil, errors.New(review.Response.Result.Message)
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", review.Response.Result.Status)
}

// checkConverted returns what is wrong with a converted object, and restores its metadata.
func checkConverted(to target, was, u *unstructured.Unstructured) error {
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
