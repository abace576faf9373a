// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func (s *Server) patchLocked(r *Request, t *table, live *unstructured.Unstructured) (*http.Response, error) {
	if err := r.writeOptions("PatchOptions"); err != nil {
		return nil, err
	}
	u, err := s.patched(r, t, live)
	if err != nil {
		return nil, err
	}
	return s.writeLocked(r, t, live, u)
}

// patched returns what the patch makes of live, which is nil if there is none.
func (s *Server) patched(r *Request, t *table, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if live == nil {
		if r.Verb == "apply" && r.Subresource == "" {
			u, err := r.decodeCustom(t)
			if err == nil {
				u.Object, err = normal(t.Resource, u.Object)
			}
			if err == nil {
				wipe(u)
				err = r.matchNamespace(u)
			}
			return u, err
		}
		return nil, t.notFound(r.Name)
	}
	data, err := yaml.YAMLToJSON(r.body) // JSON is YAML
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patch := map[string]any{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest("sim supports merge patches and whole objects: " + err.Error())
	}
	content, err := normal(t.Resource, merge(live.DeepCopy().Object, patch))
	return &unstructured.Unstructured{Object: content}, err
}

// merge applies a JSON merge patch (RFC 7396) to an object in place.
func merge(object, patch map[string]any) map[string]any {
	for field, value := range patch {
		before, isObject := object[field].(map[string]any)
		change, isChange := value.(map[string]any)
		switch {
		case value == nil:
			delete(object, field)
		case isChange && isObject:
			object[field] = merge(before, change)
		case isChange:
			object[field] = merge(map[string]any{}, change)
		default:
			object[field] = value
		}
	}
	return object
}
