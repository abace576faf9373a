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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/ledger"
)

// appliedFor is how long an unchanged object is not sent again. UnlessAlready lists what goes
// unnoticed in between.
const appliedFor = time.Hour

// UnlessAlready makes Apply and ApplyStatus send nothing if that would change nothing. live is the
// object as last seen, usually from a cache, or nil if there is none. If nothing is sent, the call
// returns a copy of live.
//
// The client compares with the last call; it does not predict what the API server would do. After
// each apply with this option it keeps a hash of the bytes sent and of the object answered, for that
// kind, UID, field owner and subresource. The next call is not sent if its bytes and live have the
// same hash. These parts of the object do not count: resourceVersion, managedFields, apiVersion,
// kind, the annotation kubectl.kubernetes.io/last-applied-configuration, and the status unless
// ApplyStatus is called.
//
// So an apply is sent after any other change of the object, and for a new object of the same name. It
// is also sent once after a start of the process, after an hour, after an error, and after 100000
// other objects. If live comes from a cache with a Transform, it is always sent.
//
// If live is stale, its next event wakes the controller that watches it. Two changes go unnoticed:
// another field owner takes or gives up a field without changing its value, or the same field owner
// does so in another process.
func UnlessAlready(live Object) Option {
	return Option{name: "UnlessAlready", fits: []verb{applying}, set: func(c *call) error {
		c.compare, c.already = true, nil
		if !argument.IsNil(live) {
			c.already = live
		}
		return nil
	}}
}

// appliedKey identifies a hash.
type appliedKey struct {
	kind               schema.GroupVersionKind
	uid                types.UID
	owner, subresource string
}

// checkLive returns an error if UnlessAlready was given something else than the object of an apply.
func checkLive[T Object](t target, c call, key types.NamespacedName) error {
	if c.compare && t.form == inMetadata {
		return fmt.Errorf("%s: client.UnlessAlready wants a handle of the whole kind, metadata does not tell enough", t.doing(applying, key))
	}
	if c.already == nil {
		return nil
	}
	if _, ok := c.already.(T); !ok {
		return fmt.Errorf("%s: client.UnlessAlready was given a %T, not a %T", t.doing(applying, key), c.already, *new(T))
	}
	if is := keyOf(c.already); is != key {
		return fmt.Errorf("%s: client.UnlessAlready was given another object, %s", t.doing(applying, key), is)
	}
	return nil
}

// applied reports whether the last call sent the same, and the object is still as it was answered. If
// not, that call is forgotten: the next one may fail and still change the object.
func (t target) applied(c call, body []byte) bool {
	if !c.compare || c.already == nil || len(c.write.DryRun) > 0 {
		return false
	}
	key := t.appliedKey(c, c.already)
	last, ok := t.client.applied.Get(key)
	if !ok {
		return false
	}
	if sum, ok := t.sum(body, c.already); ok && sum == last {
		return true
	}
	t.client.applied.Remove(key)
	return false
}

func (t target) remember(c call, body []byte, answer Object) {
	if !c.compare || len(c.write.DryRun) > 0 || answer.GetUID() == "" {
		return
	}
	if sum, ok := t.sum(body, answer); ok {
		t.client.applied.Add(t.appliedKey(c, answer), sum, appliedFor)
	}
}

func (t target) appliedKey(c call, obj Object) appliedKey {
	return appliedKey{t.gvk, obj.GetUID(), c.write.FieldManager, t.subresource}
}

// sum returns the hash of the request and of what counts of the object.
func (t target) sum(body []byte, obj Object) (sum [sha256.Size]byte, ok bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return sum, false
	}
	content = maps.Clone(content) // an unstructured object gives its own
	delete(content, "apiVersion")
	delete(content, "kind")
	if t.subresource != "status" {
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
	_, _ = fmt.Fprintf(hash, "%d\n", len(body))
	_, _ = hash.Write(body)
	_, _ = hash.Write(data)
	return [sha256.Size]byte(hash.Sum(nil)), true
}

// skipped reports an apply that was not sent.
func (t target) skipped(ctx context.Context, r schema.GroupVersionResource) {
	if t.client.hooks.Skipped == nil {
		return
	}
	s := hook.SkippedApply{Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: t.subresource}
	if l := ledger.Of(ctx); l != nil {
		s.Controller = l.Origin().Controller
	}
	t.client.hooks.Skipped(s)
}
