// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/client"
)

// applyOne applies a child if needed, and sets what it found and did. It runs beside others.
func (c *call[O]) applyOne(ctx context.Context, d *child) error {
	fields, err := c.fields(d)
	if err != nil {
		return err
	}
	live, err := c.present(ctx, d)
	if err != nil {
		return err
	}
	var differ differences
	if live != nil {
		if differ, err = compare(fields, live); err != nil {
			return err
		}
		if live.GetDeletionTimestamp() != nil {
			d.State, d.Reason = Waiting, "for the end of its deletion"
			return nil
		}
		if live.GetAnnotations()[AppliedAnnotation] == d.sum && (d.keepDrift || len(differ.paths) == 0) {
			d.State, d.live = Unchanged, live
			return nil
		}
	}
	config, err := c.configuration(d, fields)
	if err != nil {
		return err
	}
	applied, err := d.kind.apply(ctx, c.set.client, config, live)
	switch {
	// With the same sum, a new object would differ again: its creation changed the field.
	case err != nil && live != nil && d.recreate && isImmutable(err) && live.GetAnnotations()[AppliedAnnotation] != d.sum:
		return c.recreate(ctx, d, live, err)
	case err != nil:
		d.live = live
		return explain(d, err)
	case live == nil:
		d.State, d.live = Created, applied
	case applied.GetResourceVersion() == live.GetResourceVersion():
		d.State, d.live = Unchanged, applied
	default:
		d.State, d.Paths, d.live = Changed, differ.paths, applied
	}
	return d.checkApplied(fields, applied)
}

// fields returns the desired fields as JSON has them, and sets their sum.
func (c *call[O]) fields(d *child) (fields map[string]any, err error) {
	body, err := encoded(d.ApplyConfiguration)
	if err != nil {
		return nil, err
	}
	set := c.applySet()
	d.sum = digest(append(body, set...))[:16]
	if err = json.Unmarshal(body, &fields); err == nil && set != "" {
		err = unstructured.SetNestedField(fields, set, "metadata", "labels", partOf)
	}
	if err != nil {
		return nil, fmt.Errorf("reading its desired fields: %w", err)
	}
	return fields, nil
}

// present returns the child as the cache has it, or nil. A child that is missing there is read
// live: an apply would take over an object that another client has made.
func (c *call[O]) present(ctx context.Context, d *child) (client.Object, error) {
	live, err := d.kind.get(ctx, d.Name)
	if apierrors.IsNotFound(err) {
		if live, err = d.kind.getLive(ctx, c.set.client, d.Name); apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // no object, and no error
		}
	}
	if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(live, c.owner) {
		return nil, fmt.Errorf("it exists and %s, so it is left alone; delete it, or choose another name", controllerOf(live, c.owner))
	}
	return live, nil
}

func controllerOf(obj, owner client.Object) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return "has no controlling owner"
	}
	text := fmt.Sprintf("belongs to the %s %s", ref.Kind, ref.Name)
	if ref.Name == owner.GetName() {
		text += fmt.Sprintf(" with the UID %s", ref.UID)
	}
	return text
}

// configuration returns the fields to apply.
func (c *call[O]) configuration(d *child, fields map[string]any) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(d.kind.GroupVersionKind())
	u.SetNamespace(d.Name.Namespace)
	u.SetName(d.Name.Name)
	own := *metav1.NewControllerRef(c.owner, c.set.owners.GroupVersionKind())
	refs := slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == own.UID })
	u.SetOwnerReferences(append(refs, own))
	// SetAnnotations would drop all others if one is no string.
	return u, unstructured.SetNestedField(fields, d.sum, "metadata", "annotations", AppliedAnnotation)
}

// settle computes whether the child is ready, and remembers it.
func (c *call[O]) settle(d *child) {
	d.done = true
	if d.live == nil || d.Err != nil {
		return
	}
	if d.ready != nil {
		d.Ready, d.Reason = d.ready(d.live)
	} else {
		d.Ready, d.Reason = readiness(d.Kind.GroupKind(), d.live)
	}
	if d.Reason = cmp.Or(d.Reason, "it is not ready"); d.Ready {
		d.Reason = ""
	}
	if d.printed {
		d.uid, c.learned = d.live.GetUID(), true
		d.finding = finding{d.live.GetResourceVersion(), d.print, d.Ready, d.Reason}
	}
}

// checkApplied refuses desired fields that the API server does not store: each apply would do the
// same again. The stringData of a Secret is meant to vanish. Fields that are stored in another form
// still differ, so they are none of those that changed.
func (d *child) checkApplied(desired map[string]any, applied client.Object) error {
	still, err := compare(desired, applied)
	if err != nil {
		return err
	}
	d.Paths = slices.DeleteFunc(d.Paths, func(path string) bool { return slices.Contains(still.paths, path) })
	dropped := slices.DeleteFunc(still.missing, func(path string) bool {
		return d.Kind.Kind == "Secret" && strings.HasPrefix(path, ".stringData")
	})
	if len(dropped) == 0 {
		return nil
	}
	return fmt.Errorf("the API server does not store %s; leave the field out, or find out what removes it: it may be a part of the status, of a disabled feature, or a webhook may change it", strings.Join(dropped, ", "))
}

// isImmutable reports whether the API server refuses the object only because immutable fields
// change. Validation has no code of its own for that: the texts are from apimachinery's
// FieldImmutableErrorMsg and its callers. Names and values may have them, too, and do not count.
func isImmutable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return !isImmutableCause(c) })
}

func isImmutableCause(c metav1.StatusCause) bool {
	text := c.Message
	if c.Type != metav1.CauseTypeForbidden { // "Invalid value: VALUE: text"
		text = text[strings.LastIndex(text, ": ")+1:]
	}
	return slices.ContainsFunc([]string{
		"immutable", "may not be changed", "may not change", "cannot change roleRef", "updates to statefulset spec for fields other than",
	}, func(known string) bool { return strings.Contains(text, known) })
}

func (c *call[O]) recreate(ctx context.Context, d *child, live client.Object, why error) error {
	if err := d.kind.remove(ctx, c.set.client, live); err != nil {
		return errors.Join(why, fmt.Errorf("deleting it, to create it again: %w", err))
	}
	d.State, d.Reason = Deleted, "to create it again, because an immutable field changes: "+why.Error()
	return nil
}

// explain adds the remedy to an error of the API server.
func explain(d *child, err error) error {
	switch {
	case isImmutable(err) && !d.recreate:
		return fmt.Errorf("%w; keep the field, or give the child the option children.Recreate", err)
	case apierrors.IsMethodNotSupported(err), apierrors.IsUnsupportedMediaType(err):
		return fmt.Errorf("%w; this kind has no server-side apply: write it with client.Handle", err)
	}
	return err
}
