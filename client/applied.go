// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/ledger"
)

// appliedFor is after which time an unchanged object is sent again: see UnlessAlready for what is not
// seen in between.
const appliedFor = time.Hour

// UnlessAlready lets an Apply or ApplyStatus send nothing if it would change nothing. live is the object as it is known, from a
// cache usually; nil, also a nil pointer, if it is not there. When live is not changed, the call returns a copy of it.
//
// It is a comparison with the last time, not a guess at what the API server would do. After each apply with this option the
// client keeps, for the object (kind, UID), the field owner and the subresource, a hash of the bytes that were sent and of the
// object as the API server answered, defaults and what admission made of it included. If a later call would send the same
// bytes, and live is the same as that answer, it is not sent. Of the object, these do not count: resourceVersion, managedFields,
// apiVersion and kind, the annotation kubectl.kubernetes.io/last-applied-configuration, and the status, unless it is the status
// that is applied.
//
// So it is sent if anybody has changed anything else of the object since, or if the object is a new one of the same name. It is
// also sent once for each object after a start of the process, after an hour without one, after an error, and when the client
// has applied more than 100000 other objects in between. A live object that is not whole, because its cache has a Transform,
// is never the same. A live object that lags behind is believed: what it does not show yet is seen to when it does, since the
// controller that watches it is woken then. What is not seen at all: another field owner that has come to own a field as well, or has ceased to, without
// changing its value, or the same field owner in another process that has.
func UnlessAlready(live Object) Option {
	return Option{name: "UnlessAlready", fits: applying, set: func(c *call) error {
		c.compare, c.already = true, nil
		if !argument.IsNil(live) {
			c.already = live
		}
		return nil
	}}
}

// appliedKey is what a hash is of.
type appliedKey struct {
	kind               schema.GroupVersionKind
	uid                types.UID
	owner, subresource string
}

// application is one call of Apply.
type application struct {
	memory *cache.LRUExpireCache // nil if nothing is compared
	key    appliedKey
	body   []byte
	live   Object // nil if unknown
}

func newApplication[T Object](t target, c call, key types.NamespacedName, subresource string, body []byte) (*application, error) {
	a := &application{key: appliedKey{t.gvk, "", c.owner, subresource}, body: body}
	if !c.compare {
		return a, nil
	}
	if _, ok := any(*new(T)).(*metav1.PartialObjectMetadata); ok {
		return nil, fmt.Errorf("apply %s: client.UnlessAlready wants a handle of the whole kind, metadata does not tell enough", key.Name)
	}
	if len(c.dryRun) == 0 {
		a.memory = t.client.applied
	}
	if c.already == nil {
		return a, nil
	}
	if _, ok := c.already.(T); !ok {
		return nil, fmt.Errorf("apply %s: client.UnlessAlready was given a %T, not a %T", key.Name, c.already, *new(T))
	}
	if is := keyOf(c.already); is != key {
		return nil, fmt.Errorf("apply %s: client.UnlessAlready was given another object, %s", key, is)
	}
	a.live = c.already
	return a, nil
}

// done says whether the last such call has sent the same, and the object is as it was answered then. If not, that is forgotten:
// the call to come may fail, and still have changed it.
func (a *application) done() bool {
	if a.memory == nil || a.live == nil {
		return false
	}
	a.key.uid = a.live.GetUID()
	last, ok := a.memory.Get(a.key)
	if !ok {
		return false
	}
	if sum, ok := a.sum(a.live); ok && sum == last {
		return true
	}
	a.memory.Remove(a.key)
	return false
}

func (a *application) remember(answer Object) {
	if a.memory == nil {
		return
	}
	a.key.uid = answer.GetUID()
	if sum, ok := a.sum(answer); ok && a.key.uid != "" {
		a.memory.Add(a.key, sum, appliedFor)
	}
}

// sum is the hash of the request and of what counts of the object.
func (a *application) sum(obj Object) (sum [sha256.Size]byte, ok bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return sum, false
	}
	content = maps.Clone(content) // an unstructured object gives its own
	delete(content, "apiVersion")
	delete(content, "kind")
	if a.key.subresource != "status" {
		delete(content, "status")
	}
	if m, ok := content["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		delete(m, "resourceVersion")
		delete(m, "managedFields")
		if all, ok := m["annotations"].(map[string]any); ok {
			all = maps.Clone(all)
			if delete(all, corev1.LastAppliedConfigAnnotation); len(all) == 0 {
				delete(m, "annotations")
			} else {
				m["annotations"] = all
			}
		}
		content["metadata"] = m
	}
	data, err := json.Marshal(content) // sorted
	if err != nil {
		return sum, false
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%d\n", len(a.body))
	_, _ = hash.Write(a.body)
	_, _ = hash.Write(data)
	return [sha256.Size]byte(hash.Sum(nil)), true
}

// skipped tells of an apply that was not sent.
func (t target) skipped(ctx context.Context, r schema.GroupVersionResource, subresource string) {
	if t.client.hooks.Skipped == nil {
		return
	}
	s := hook.SkippedApply{Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: subresource}
	if l := ledger.Of(ctx); l != nil {
		s.Controller = l.Origin().Controller
	}
	t.client.hooks.Skipped(s)
}
