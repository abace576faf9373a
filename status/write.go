// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

const tries = 5

// OutdatedError is the error of a status that was not written, because it is outdated: it was
// computed for an older generation, or for a deleted object with the same name. It wraps the API
// server's conflict, so apierrors.IsConflict is true.
type OutdatedError struct {
	Object types.NamespacedName
	// Computed is the generation for which the status was computed, Newest the object's.
	Computed, Newest int64
	// Replaced is true if the object was deleted and created again.
	Replaced bool

	err error
}

// Error names the object and both generations.
func (e *OutdatedError) Error() string {
	name := object.Name(e.Object)
	if e.Replaced {
		return fmt.Sprintf("the status of %s is not written: it was computed for an object that was deleted and created again", name)
	}
	return fmt.Sprintf("the status of %s is not written: it was computed for generation %d, but the object is at generation %d",
		name, e.Computed, e.Newest)
}

// Unwrap returns the API server's conflict.
func (e *OutdatedError) Unwrap() error { return e.err }

// Apply applies the status of desired with server-side apply and returns the object as stored.
// desired must name the object of s and contain s.ApplyConfigurations. Apply adds the UID and
// resourceVersion of that object, so that the API server refuses an outdated status. If the object
// has changed in another way, such as its labels, Apply tries again with its new version, up to 5
// times.
//
// The error is an *[OutdatedError] if the object's generation has changed, and IsNotFound if the
// object is gone. Mistakes of s are errors, too; nothing is sent then.
//
// A retry needs the right to get the object. Without it, the error is the conflict.
//
// The error is terminal if the apply lost a condition of another field manager: the CRD lacks
// listType=map for the conditions, so each apply replaces the whole list. The first such apply of a
// kind in a process is stored, later ones are not.
//
// With client.UnlessAlready an unchanged status is sent once more after each change of the object,
// because the request contains its version. Without that option, the API server recognizes a no-op.
func Apply[T client.Object](ctx context.Context, h *client.Handle[T], s *Set, desired client.ApplyConfiguration, options ...client.Option) (T, error) {
	if err := s.writable(argument.IsNil(desired)); err != nil {
		return *new(T), err
	}
	if got := (types.NamespacedName{Namespace: value(desired.GetNamespace()), Name: value(desired.GetName())}); got != s.key() {
		return *new(T), fmt.Errorf("status of %s: the configuration is for %q; give the object that the Set is for", s.name(), object.Name(got))
	}
	guarded := configuration{ApplyConfiguration: desired, uid: s.object.UID, version: s.object.ResourceVersion}
	others := s.others(s.all)
	for try := 1; ; try++ {
		stored, err := applyKeyed(ctx, h, s, guarded, others, options)
		if !apierrors.IsConflict(err) || apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
			return stored, err
		}
		live, readErr := newest(ctx, h, s, err)
		if readErr != nil {
			return *new(T), readErr
		}
		if try == tries {
			return *new(T), err
		}
		guarded.version = live.GetResourceVersion()
		if now, err := stateOf(live); err == nil {
			others = s.others(now.conditions)
		}
	}
}

// applyKeyed applies a status. It returns an error if a condition of others is lost. If the kind
// has lost one before, a dry run comes first.
func applyKeyed[T client.Object](ctx context.Context, h *client.Handle[T], s *Set, desired configuration, others []string, options []client.Option) (T, error) {
	kind := fmt.Sprintf("%T %s %s", *new(T), value(desired.GetAPIVersion()), value(desired.GetKind()))
	if _, suspect := unkeyed.Load(kind); suspect && len(others) > 0 {
		would, err := h.ApplyStatus(ctx, desired, append(slices.Clone(options), client.DryRun())...)
		if err == nil {
			err = s.applied(would, others)
		}
		if err != nil {
			return *new(T), err
		}
		unkeyed.Delete(kind) // the schema was corrected
	}
	stored, err := h.ApplyStatus(ctx, desired, options...)
	if err != nil {
		return stored, err
	}
	if err := s.applied(stored, others); err != nil {
		unkeyed.Store(kind, nil)
		return *new(T), err
	}
	return stored, nil
}

// Update replaces the status of obj and returns the object as stored. obj is the object of s with
// the new status, including s.Conditions.
//
// The error is an *[OutdatedError] if the object's generation has changed, or if obj and the object
// of s have different generations. It is a conflict after any other change, and IsNotFound if the
// object is gone. Mistakes of s are errors, too; nothing is sent then.
func Update[T client.Object](ctx context.Context, h *client.Handle[T], s *Set, obj T, options ...client.Option) (T, error) {
	if err := s.writable(argument.IsNil(obj)); err != nil {
		return *new(T), err
	}
	if got := object.Key(obj); got != s.key() {
		return *new(T), fmt.Errorf("status of %s: the object is %q; give the object that the Set is for", s.name(), object.Name(got))
	}
	if err := s.outdated(obj, nil); err != nil {
		return *new(T), err
	}
	stored, err := h.UpdateStatus(ctx, obj, options...)
	if !apierrors.IsConflict(err) {
		return stored, err
	}
	if _, readErr := newest(ctx, h, s, err); readErr != nil {
		return *new(T), readErr
	}
	return *new(T), err
}

func (s *Set) writable(nothing bool) error {
	switch {
	case s == nil:
		return errors.New("status: the Set is nil; status.For makes one")
	case s.Err() != nil:
		return s.Err()
	case nothing:
		return fmt.Errorf("status of %s: there is nothing to write, the argument is nil", s.name())
	case s.object.UID == "" || s.object.ResourceVersion == "":
		return fmt.Errorf("status of %s: the object has no UID or no resourceVersion; give status.For one that was read", s.name())
	}
	return nil
}

// newest reads the object after a conflict. Without the right to do so, the conflict stands: the
// next Reconcile sees a newer object.
func newest[T client.Object](ctx context.Context, h *client.Handle[T], s *Set, conflict error) (T, error) {
	live, err := h.GetLive(ctx, s.key())
	switch {
	case apierrors.IsForbidden(err):
		return *new(T), conflict
	case err != nil:
		return *new(T), err
	}
	return live, s.outdated(live, conflict)
}

func (s *Set) outdated(obj client.Object, conflict error) error {
	replaced := obj.GetUID() != s.object.UID
	if !replaced && obj.GetGeneration() == s.object.Generation {
		return nil
	}
	e := &OutdatedError{Object: s.key(), Computed: s.object.Generation, Newest: obj.GetGeneration(), Replaced: replaced, err: conflict}
	if conflict == nil {
		e.err = apierrors.NewConflict(schema.GroupResource{}, s.object.Name, errors.New("the status was computed for another generation"))
	}
	return e
}

type configuration struct {
	client.ApplyConfiguration

	uid     types.UID
	version string
}

func (c configuration) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(c.ApplyConfiguration)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	meta, _ := fields["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = c.uid, c.version
	fields["metadata"] = meta
	return json.Marshal(fields)
}

func (c configuration) GetKind() *string {
	if k, ok := c.ApplyConfiguration.(interface{ GetKind() *string }); ok {
		return k.GetKind()
	}
	return nil
}

func (c configuration) GetAPIVersion() *string {
	if v, ok := c.ApplyConfiguration.(interface{ GetAPIVersion() *string }); ok {
		return v.GetAPIVersion()
	}
	return nil
}
