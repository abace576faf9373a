// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	between     = 50 * time.Millisecond // between two looks
	lookAgain   = 10 * time.Minute      // without an event
	mostRetry   = time.Minute           // after errors; the first retry is after 250 ms
	watchRetry  = 5 * time.Second       // after a failed watch
	longestStep = 10 * time.Second      // all requests of a look
)

// Run manages the certificates, and the bundles of the targets, until ctx ends. It then returns
// nil. Problems do not end it. Call it once, on every replica. Events go to r, and new certificates
// to h; both may be nil. If the options are wrong, it returns the error of
// Options.Validate.
func (c *Certs) Run(ctx context.Context, cl *client.Client, r *events.Recorder, h *hook.Hook, targets ...Target) error {
	if c.err != nil {
		return c.err
	}
	if cl == nil {
		return errors.New("certs.Run: the client is nil; client.New makes one")
	}
	ctx, cancel := context.WithCancel(term.Without(ctx))
	d := newDriver(c, cl, r, h, targets)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	watches.Go(func() { d.watch(ctx, cl, secret, c.o.Secret) })
	for _, t := range d.targets {
		watches.Go(func() { d.watch(ctx, cl, t.Kind.gvk(), types.NamespacedName{Name: t.Name}) })
	}
	for failures := 0; ctx.Err() == nil; {
		next, err := d.step(ctx)
		failures++
		if err == nil {
			failures = 0
		}
		retry := time.Now().Add(min(time.Second<<min(failures, 10)/8, mostRetry))
		if err != nil && retry.Before(next) {
			next = retry
		}
		d.pause(ctx, next)
	}
	return nil
}

func newDriver(c *Certs, cl *client.Client, r *events.Recorder, h *hook.Hook, targets []Target) *driver {
	d := &driver{
		certs: c, o: &c.o, rules: rules{caLifetime: c.o.CALifetime, leafLifetime: c.o.LeafLifetime, skew: c.o.Skew, propagation: c.o.Propagation},
		hook: h, targets: targets, resets: map[Target]*resets{}, wake: make(chan struct{}, 1),
		secrets: client.For[*corev1.Secret](cl), objects: map[Kind]*client.Handle[*unstructured.Unstructured]{},
		report: &reporter{recorder: r, texts: map[string]string{}},
	}
	for _, t := range d.targets {
		d.resets[t] = &resets{}
		d.objects[t.Kind] = client.ForKind[*unstructured.Unstructured](cl, t.Kind.gvk())
	}
	return d
}

// pause returns at next, or after a watch reported something.
func (d *driver) pause(ctx context.Context, next time.Time) {
	if run.Sleep(ctx, between) != nil {
		return
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.wake:
	case <-ctx.Done():
	}
}

// watch wakes the driver for each change of one object, until ctx ends.
func (d *driver) watch(ctx context.Context, cl *client.Client, kind schema.GroupVersionKind, key types.NamespacedName) {
	h := client.ForKind[*metav1.PartialObjectMetadata](cl, kind)
	o := client.ListOptions{Namespace: key.Namespace, Fields: fields.OneTermEqualSelector("metadata.name", key.Name)}
	logged := ""
	for ctx.Err() == nil {
		for event, err := range h.WatchLive(ctx, o) {
			if err != nil {
				if text := err.Error(); ctx.Err() == nil && text != logged {
					logged = text
					logging.Of(ctx).Warn("cannot watch an object of the webhook certificates; it is read every 10 minutes instead",
						"object", fmt.Sprintf("%s %s", kind.Kind, key.Name), "err", err)
				}
				break
			}
			if event.Type != watch.Bookmark {
				select {
				case d.wake <- struct{}{}:
				default:
				}
			}
		}
		_ = run.Sleep(ctx, watchRetry)
	}
}
