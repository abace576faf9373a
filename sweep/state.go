// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
)

// State is what the API server stored at one version, of the kinds that were written.
type State struct {
	scheme  *runtime.Scheme
	objects map[schema.GroupVersionKind]map[string]*unstructured.Unstructured // by namespace/name
	initial map[*unstructured.Unstructured]bool                               // as before the run
}

// List returns the objects of a Go type of the scheme, by namespace and name. You own them. T must
// have the version in which the objects are written: otherwise there are none.
func List[T client.Object](s *State) (all []T) {
	t := *new(T)
	for kind, objects := range s.objects {
		typed, err := s.new(kind)
		if _, ok := typed.(T); err != nil || !ok {
			continue
		}
		keys := make([]string, 0, len(objects))
		for key := range objects {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			typed, err := s.new(kind)
			if err == nil {
				err = runtime.DefaultUnstructuredConverter.FromUnstructured(objects[key].Object, typed)
			}
			if err != nil {
				panic(fmt.Sprintf("sweep: the %s %s is not a %T: %v", kind.Kind, key, t, err))
			}
			all = append(all, typed.(T)) //nolint:forcetypeassert // see above
		}
	}
	return all
}

func (s *State) new(kind schema.GroupVersionKind) (runtime.Object, error) {
	if obj, err := s.scheme.New(kind); err == nil {
		return obj, nil
	}
	return scheme.Scheme.New(kind)
}

// owned reports whether an object has no controller, or one that exists.
func (s *State) owned(o *unstructured.Unstructured) bool {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return true
	}
	for kind, objects := range s.objects {
		if kind.Kind != ref.Kind {
			continue
		}
		for _, owner := range objects {
			if owner.GetUID() == ref.UID {
				return true
			}
		}
	}
	return false
}

// apply makes the next state.
func (s *State) apply(c change) {
	kind := c.object.GroupVersionKind()
	if s.objects[kind] == nil {
		s.objects[kind] = map[string]*unstructured.Unstructured{}
	}
	if c.initial {
		s.initial[c.object] = true
	}
	key := c.object.GetNamespace() + "/" + c.object.GetName()
	if s.objects[kind][key] = c.object; c.kind == watch.Deleted {
		delete(s.objects[kind], key)
	}
}
