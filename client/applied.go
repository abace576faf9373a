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

// application is one call of Apply.
type application struct {
	client  *Client
	compare bool
	key     appliedKey
	body    []byte
	live    Object // nil if unknown
}

func newApplication[T Object](t target, c call, key types.NamespacedName, body []byte) (*application, error) {
	a := &application{
		client: t.client, compare: c.compare && len(c.write.DryRun) == 0, live: c.already, body: body,
		key: appliedKey{kind: t.gvk, owner: c.write.FieldManager, subresource: t.subresource},
	}
	if c.compare && t.form == inMetadata {
		return nil, fmt.Errorf("%s: client.UnlessAlready wants a handle of the whole kind, metadata does not tell enough", t.doing(applying, key))
	}
	if c.already == nil {
		return a, nil
	}
	if _, ok := c.already.(T); !ok {
		return nil, fmt.Errorf("%s: client.UnlessAlready was given a %T, not a %T", t.doing(applying, key), c.already, *new(T))
	}
	if is := keyOf(c.already); is != key {
		return nil, fmt.Errorf("%s: client.UnlessAlready was given another object, %s", t.doing(applying, key), is)
	}
	return a, nil
}

// done reports whether the last call sent the same, and the object is still as it was answered. If
// not, that call is forgotten: the next one may fail and still change the object.
func (a *application) done() bool {
	if !a.compare || a.live == nil {
		return false
	}
	a.key.uid = a.live.GetUID()
	last, ok := a.client.applied.Get(a.key)
	if !ok {
		return false
	}
	if sum, ok := a.sum(a.live); ok && sum == last {
		return true
	}
	a.client.applied.Remove(a.key)
	return false
}

func (a *application) remember(answer Object) {
	if !a.compare {
		return
	}
	a.key.uid = answer.GetUID()
	if sum, ok := a.sum(answer); ok && a.key.uid != "" {
		a.client.applied.Add(a.key, sum, appliedFor)
	}
}

// sum returns the hash of the request and of what counts of the object.
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
