// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const resource = "leases"

// timeout is for how long a request is waited for.
func (e *Elector) timeout() time.Duration { return max(time.Second, e.o.RenewDeadline/2) }

// do makes a request once: whoever campaigns or renews knows best when to try again.
func (e *Elector) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout())
	defer cancel()
	lease := &coordinationv1.Lease{}
	if err := r.MaxRetries(0).Do(ctx).Into(lease); err != nil {
		return nil, err
	}
	if !e.isOurs(lease) || lease.UID == "" || lease.ResourceVersion == "" {
		return nil, fmt.Errorf("the answer to a request for the Lease %s is something else", e)
	}
	return lease, nil
}

// isOurs says whether a Lease is the one of this elector.
func (e *Elector) isOurs(l *coordinationv1.Lease) bool {
	return l.Namespace == e.o.Namespace && l.Name == e.o.Lease
}

// stored looks whether an answer is what was sent. Something in between may have changed it back, and the Lease be somebody else's.
func (e *Elector) stored(sent, got *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	switch {
	case err != nil:
		return nil, err
	case holderOf(got) == holderOf(sent) && durationOf(got) >= durationOf(sent) && got.Spec.RenewTime.Equal(sent.Spec.RenewTime) &&
		(sent.UID == "" || got.UID == sent.UID):
		return got, nil
	}
	return nil, fmt.Errorf("the API server has stored something else than what was written to the Lease %s; "+
		"look for an admission webhook that changes Leases", e)
}

// read returns the Lease, nil if there is none.
func (e *Elector) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Get().Namespace(e.o.Namespace).Resource(resource).Name(e.o.Lease))
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nothing is what was found
	}
	return lease, e.explained("get", err)
}

// create makes the Lease.
func (e *Elector) create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Post().Namespace(e.o.Namespace).Resource(resource).Body(l))
	return e.stored(l, lease, e.explained("create", err))
}

// update writes the Lease, if it still has the UID and version that l has.
func (e *Elector) update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease, err := e.do(ctx, e.rest.Put().Namespace(e.o.Namespace).Resource(resource).Name(e.o.Lease).Body(l))
	return e.stored(l, lease, e.explained("update", err))
}

// sight is the Lease as a watch tells of it, nil if it was deleted.
type sight struct{ lease *coordinationv1.Lease }

// watch tells of each change of the Lease since a version, until ctx is done or the watch ends. It needs the right to watch the
// one Lease: a rule with its resourceNames is enough.
func (e *Elector) watch(ctx context.Context, since string, changes chan<- sight) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(e.timeout(), cancel)
	seconds := int64(watchLimit / time.Second)
	stream, err := e.rest.Get().Namespace(e.o.Namespace).Resource(resource).VersionedParams(&metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, e.o.Lease).String(), ResourceVersion: since,
		Watch: true, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	}, scheme.ParameterCodec).MaxRetries(0).Watch(ctx)
	if err != nil {
		return e.explained("watch", err)
	}
	defer func() {
		stream.Stop()
		for range stream.ResultChan() { // its sender ends when nothing is left to be read
		}
	}()
	if !late.Stop() {
		return fmt.Errorf("no answer for %s", e.timeout())
	}
	for event := range stream.ResultChan() {
		change, err := e.sightOf(event)
		switch {
		case err != nil:
			return err
		case change == nil:
			continue
		}
		select {
		case changes <- *change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watchLimit is for how long one watch is asked for.
const watchLimit = 5 * time.Minute

// sightOf reads an event; nil means that it does not matter.
func (e *Elector) sightOf(event watch.Event) (*sight, error) {
	lease, ok := event.Object.(*coordinationv1.Lease)
	ours := ok && e.isOurs(lease)
	switch event.Type {
	case watch.Error:
		return nil, apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified:
		if ours {
			return &sight{lease}, nil
		}
	case watch.Deleted:
		if ours {
			return &sight{}, nil
		}
	case watch.Bookmark:
		return nil, nil //nolint:nilnil // it tells of no change
	}
	return nil, fmt.Errorf("the API server sent a %s of %s to a watch of the Lease %s", event.Type, kindOf(event.Object), e)
}

func kindOf(obj runtime.Object) string {
	if obj == nil {
		return "nothing"
	}
	if l, ok := obj.(*coordinationv1.Lease); ok {
		return fmt.Sprintf("the Lease %s/%s", l.Namespace, l.Name)
	}
	return fmt.Sprintf("%T", obj)
}

// watching is a watch that goes on.
type watching struct {
	began   time.Time
	changes chan sight
	ended   chan error // why it has, once
	stop    func()     // returns when it has
}

// startWatch watches until stop is called or the watch ends.
func (e *Elector) startWatch(ctx context.Context, since string) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{began: time.Now(), changes: make(chan sight), ended: make(chan error, 1)}
	var running sync.WaitGroup
	running.Go(func() { w.ended <- e.watch(ctx, since, w.changes) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	return w
}
