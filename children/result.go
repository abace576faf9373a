// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/contextkey"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// State is what a call did with a child.
type State string

// States of children.
const (
	Unchanged State = "unchanged"
	Created   State = "created"
	Changed   State = "changed"
	Pruned    State = "pruned"  // its deletion was asked for, because it is no longer desired
	Deleted   State = "deleted" // its deletion was asked for, by Set.Delete or Recreate
	Waiting   State = "waiting" // for others, or for a deletion
	Gone      State = "gone"    // Set.Delete found nothing to delete
	Skipped   State = "skipped" // its kind is not served
	Failed    State = "failed"
)

// Child is a row of a Result.
type Child struct {
	Kind  schema.GroupVersionKind
	Name  types.NamespacedName
	State State
	// Paths are the desired fields that differed before a change, such as .spec.replicas.
	Paths []string
	// Ready reports whether the child exists as desired and is ready.
	Ready bool
	// Reason is a short clause about a child that is not ready, was deleted or was skipped.
	Reason string
	// Err is the error of a child that has failed.
	Err error

	kind Kind
	live client.Object // as the API server answered, or as read from the cache; or nil
}

// title returns the kind and the name, as far as they are known.
func (c Child) title() string {
	return strings.TrimSpace(c.Kind.Kind + " " + object.Name(c.Name))
}

// short returns the title without the namespace, which is mostly the owner's.
func (c Child) short() string { return strings.TrimSpace(c.Kind.Kind + " " + c.Name.Name) }

// String describes the child in one line.
func (c Child) String() string {
	text := cmp.Or(c.title(), "a child") + ": " + string(c.State)
	if len(c.Paths) > 0 {
		text += " " + strings.Join(c.Paths, ", ")
	}
	if c.Err != nil {
		return text + ": " + c.Err.Error()
	}
	return strings.TrimSuffix(text+": "+c.Reason, ": ")
}

// Result has a row for each desired child, in the order of the call, and then for each pruned one.
type Result struct{ Children []Child }

// Object returns a desired child as stored: from the answer to its apply, or from the cache if that
// has this version. So it is never older than what Reconcile has done. If its apply has failed,
// Object returns the child as it was before, or nil, with the error. It is also an error if the
// child was not to be applied yet.
func Object[T client.Object](ctx context.Context, r Result, name string) (T, error) {
	for _, c := range r.Children {
		if c.kind == nil || c.Name.Name != name || !c.kind.is(*new(T)) {
			continue
		}
		live, err := c.live, c.Err
		if live == nil && err == nil && c.State == Unchanged {
			live, err = c.kind.get(ctx, c.Name)
		}
		obj, ok := live.(T)
		if !ok && err == nil {
			err = fmt.Errorf("children.Object: the %s is %s %s", c.short(), c.State, c.Reason)
		}
		return obj, err
	}
	return *new(T), fmt.Errorf("children.Object: there is no %T with the name %s among the desired children", *new(T), name)
}

// Ready reports whether all desired children exist and are ready. Skipped ones do not count.
func (r Result) Ready() bool { return len(r.unready()) == 0 }

func (r Result) unready() (all []Child) {
	for _, c := range r.Children {
		if !c.Ready && c.State != Skipped && c.State != Pruned && c.State != Gone {
			all = append(all, c)
		}
	}
	return all
}

// Reason returns one clause about the first child that is not ready, and how many others are not,
// for the message of a condition. It is "" if all are ready.
func (r Result) Reason() string {
	all := r.unready()
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0].clause()
	}
	return fmt.Sprintf("%s (and %d more)", all[0].clause(), len(all)-1)
}

// clause describes a child that is not ready.
func (c Child) clause() string {
	text := cmp.Or(c.short(), "a child") + " "
	switch {
	case c.Err != nil:
		return text + "has failed: " + c.Err.Error()
	case c.State == Waiting:
		return text + "waits " + c.Reason
	case c.State == Deleted:
		return text + "was deleted, " + c.Reason
	}
	return text + "is not ready: " + c.Reason
}

// note leaves the children that are not ready to package why.
func (r Result) note(ctx context.Context) {
	to, ok := ctx.Value(contextkey.Notes{}).(contextkey.Noter)
	all := r.unready()
	if !ok || len(all) == 0 {
		return
	}
	to.Note(fmt.Sprintf("children that are not ready (%d): %s", len(all), join(all, Child.clause, "; ")))
}

// Changes describes what was sent, for one event: "created Service web; changed Deployment web
// (.spec.replicas)". It is "" if nothing was.
func (r Result) Changes() string {
	var all []string
	for _, c := range r.Children {
		switch c.State {
		case Created, Changed, Pruned, Deleted:
			text := fmt.Sprintf("%s %s", c.State, c.short())
			if len(c.Paths) > 0 {
				text += " (" + strings.Join(c.Paths, ", ") + ")"
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// String has a line for each child.
func (r Result) String() string { return join(r.Children, Child.String, "\n") }

func join(all []Child, text func(Child) string, between string) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, text(c))
	}
	return strings.Join(texts, between)
}

// err joins the children's errors.
func (r Result) err() error {
	var all []error
	for _, c := range r.Children {
		if c.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", cmp.Or(c.title(), "children"), c.Err))
		}
	}
	return errors.Join(all...)
}
