// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	// reread is how long a registration is watched before it is read and applied again. During a
	// rollout, replicas of two versions apply two registrations; the version that stays wins.
	reread = 5 * time.Minute
	// firstPause is the pause after the first failure or restoration, and longestPause the longest.
	firstPause, longestPause = time.Second, time.Minute
)

// registration keeps one manifest in place.
type registration struct {
	want  *unstructured.Unstructured
	owner string
	h     *client.Handle[*unstructured.Unstructured]
	rec   *events.Recorder
	say   func(error) // for Check

	applied bool          // at least once
	pause   time.Duration // before the next restoration, or after the next failure
	last    time.Time     // of the last pause
	logged  string
}

// register applies the manifests and restores them until ctx ends.
func register(ctx context.Context, w *Webhooks, c *client.Client, rec *events.Recorder) {
	objects := registered(w)
	ctx = term.Without(ctx) // any replica may write
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, obj := range objects {
		r := &registration{
			want: obj, owner: w.o.Name + "-webhooks", rec: rec, pause: firstPause,
			h:   client.ForKind[*unstructured.Unstructured](c, obj.GroupVersionKind()),
			say: func(err error) { noteRegistration(w, target(obj), err) },
		}
		wg.Go(func() { r.run(ctx) })
	}
}

// registered returns the manifests. A configuration without webhooks is among them, so that the
// webhooks of an older version of the operator are removed.
func registered(w *Webhooks) []*unstructured.Unstructured {
	objects := w.manifests()
	for _, kind := range []string{mutatingKind.Kind, validatingKind.Kind} {
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(mutatingKind.GroupVersion().WithKind(kind))
		empty.SetName(w.o.Name)
		missing := true
		for _, obj := range objects {
			missing = missing && target(obj) != target(empty)
		}
		if missing {
			objects = append(objects, empty)
		}
	}
	return objects
}

// noteRegistration records the state of a registration for Check; nil means in place.
func noteRegistration(w *Webhooks, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing == nil {
		w.missing = map[string]error{}
	}
	w.missing[name] = err
}

func checkRegistrations(w *Webhooks) error {
	if !w.o.Register {
		return nil
	}
	objects := w.manifests()
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, obj := range objects {
		switch err, known := w.missing[target(obj)]; {
		case !known:
			return fmt.Errorf("%s is not applied yet", target(obj))
		case err != nil:
			return fmt.Errorf("%s is not in place: %w", target(obj), err)
		}
	}
	return nil
}

func (r *registration) run(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, reread)
		err := r.keep(limited)
		ended := limited.Err() != nil
		cancel()
		if ended {
			continue // read again, or the end
		}
		r.say(err)
		if text := err.Error(); text != r.logged {
			r.logged = text
			logging.Of(ctx).Error("a webhook registration is not in place", "object", target(r.want), "err", err)
		}
		r.wait(ctx)
	}
}

// wait pauses. The pause grows unless the last one is long ago.
func (r *registration) wait(ctx context.Context) {
	if time.Since(r.last) > 10*longestPause {
		r.pause = firstPause
	}
	timer := time.NewTimer(r.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	r.pause, r.last = min(2*r.pause, longestPause), time.Now()
}

// keep applies the manifest and restores it until ctx ends or a request fails.
func (r *registration) keep(ctx context.Context) error {
	fresh, found := true, false // fresh until the first comparison
	only := client.ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", r.want.GetName())}
	for event, err := range r.h.WatchLive(ctx, only) {
		switch {
		case err != nil:
			return err
		case event.Type == watch.Bookmark && !found && fresh:
			err = r.absent(ctx)
		case event.Type == watch.Deleted:
			found, err = false, r.deleted(ctx, event.Object)
		case event.Type == watch.Added || event.Type == watch.Modified:
			found, err = true, r.compare(ctx, event.Object, fresh)
		}
		if err != nil {
			return err
		}
		fresh = fresh && !found
	}
	return ctx.Err()
}

func (r *registration) absent(ctx context.Context) error {
	switch {
	case r.want.GroupVersionKind() == crdKind:
		err := fmt.Errorf("the CustomResourceDefinition %s is not installed; install it with the operator", r.want.GetName())
		r.say(err)
		logging.Of(ctx).Error("a webhook registration is not in place", "object", target(r.want), "err", err)
		return nil // the watch shows it when it is installed
	case r.want.GetKind() == mutatingKind.Kind || r.want.GetKind() == validatingKind.Kind:
		if r.want.Object["webhooks"] == nil {
			return nil
		}
	}
	return r.apply(ctx)
}

func (r *registration) deleted(ctx context.Context, last *unstructured.Unstructured) error {
	if r.want.GroupVersionKind() == crdKind || !r.applied {
		return r.absent(ctx)
	}
	r.report(ctx, last, "an unknown client has deleted it")
	return r.absent(ctx)
}

// compare applies the manifest if the object differs from it.
func (r *registration) compare(ctx context.Context, live *unstructured.Unstructured, fresh bool) error {
	if fresh { // else it may be of a newer version
		if err := r.removeOld(ctx, live); err != nil {
			return err
		}
	}
	path := differs(r.want, live)
	if path == nil {
		r.applied, r.logged = true, ""
		r.say(nil)
		return nil
	}
	manager := takenBy(live, path, r.owner)
	switch {
	case manager == "" && !fresh: // another version of this operator
		r.say(nil)
		return nil
	case manager != "" && r.applied:
		r.report(ctx, live, fmt.Sprintf("the field manager %q has changed %s", manager, path))
	}
	return r.apply(ctx)
}

// report logs a change by others before it is undone, and pauses if that repeats.
func (r *registration) report(ctx context.Context, live *unstructured.Unstructured, what string) {
	r.say(fmt.Errorf("%s; it is being restored", what))
	logging.Of(ctx).Warn("a webhook registration was changed and is restored", "object", target(r.want), "change", what)
	r.rec.Eventf(ctx, live, events.Warning, "RegistrationRestored", "RestoreRegistration", "%s; the operator restores it", what)
	r.wait(ctx)
}

func (r *registration) apply(ctx context.Context) error {
	if _, err := r.h.Apply(ctx, client.UnstructuredConfiguration(r.want), client.FieldOwner(r.owner)); err != nil {
		return err
	}
	logging.Of(ctx).Info("applied a webhook registration", "object", target(r.want))
	r.applied, r.logged = true, ""
	r.say(nil)
	return nil
}

// removeOld removes webhooks that an older version of the operator applied. Apply cannot: the CA
// bundle in them has another field owner.
func (r *registration) removeOld(ctx context.Context, live *unstructured.Unstructured) error {
	index := oldWebhook(r.want, live, r.owner)
	if index < 0 {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "remove", "path": fmt.Sprintf("/webhooks/%d", index)},
	})
	if err != nil {
		return err
	}
	after, err := r.h.Patch(ctx, types.NamespacedName{Name: live.GetName()}, types.JSONPatchType, patch, client.FieldOwner(r.owner))
	if err != nil {
		return err
	}
	logging.Of(ctx).Info("removed a webhook of an older version", "object", target(r.want))
	*live = *after
	return r.removeOld(ctx, live)
}
