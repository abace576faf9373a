// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// store feeds a registry from a reflector. Only the reflector's goroutine uses it.
type store struct {
	registry *registry
	names    map[string]bool
}

func (s *store) Add(o any) error    { return s.put(o) }
func (s *store) Update(o any) error { return s.put(o) }
func (s *store) Resync() error      { return nil }

func (s *store) put(o any) error {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil
	}
	s.names[l.Name] = true
	_, err := s.registry.put(l)
	return err
}

// Delete gets the last state, with the version of the deletion.
func (s *store) Delete(o any) error {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil
	}
	v, err := parseVersion(l.ResourceVersion)
	if err != nil {
		return err
	}
	delete(s.names, l.Name)
	s.registry.record(l.Name, nil, v)
	return nil
}

func (s *store) Replace(list []any, version string) error {
	v, err := parseVersion(version)
	if err != nil {
		return err
	}
	before := s.names
	s.names = map[string]bool{}
	for _, o := range list {
		if err := s.put(o); err != nil {
			return err
		}
	}
	for name := range before {
		if !s.names[name] {
			s.registry.record(name, nil, v)
		}
	}
	return nil
}

// watchLeases watches the Leases of the group until ctx is done.
func watchLeases(ctx context.Context, r *requests, s *registry) {
	group := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, r.group).String()}
	members := metav1.ListOptions{LabelSelector: labels.Set{GroupLabel: r.group}.String()}
	var running sync.WaitGroup
	running.Go(func() { reflect(ctx, r, group, &store{registry: s, names: map[string]bool{r.group: true}}) })
	running.Go(func() { reflect(ctx, r, members, &store{registry: s, names: map[string]bool{}}) })
	running.Go(func() { confirm(ctx, r, s) })
	running.Wait()
}

// confirm reads the group's Lease every LeaseDuration, because a watch may stop without an error.
// Members' Leases need no such reads: one that seems to be silent is acquired only if it has not
// changed, and else read.
func confirm(ctx context.Context, r *requests, s *registry) {
	pause := s.least
	for run.Sleep(ctx, pause) == nil {
		_ = read(ctx, r, s, r.group) // the watch reports what fails
		if pause = s.least; !s.get(r.group).doubted.IsZero() {
			pause = secondRead
		}
	}
}

// secondRead is the pause before a read confirms that the API server was restored. One answer may
// be from a replica that lags behind a load balancer.
const secondRead = 3 * time.Second

// read records a Lease as it is now: the watch may be late, or silent without an error. That the
// group's Lease is missing is left to the watch: a restored backup may not have it, and what is
// known of the members is wrong then.
func read(ctx context.Context, r *requests, s *registry, name string) error {
	before := s.get(name)
	l, err := r.get(ctx, name)
	if apierrors.IsNotFound(err) && before.lease != nil && name != s.group {
		s.record(name, nil, before.version+1) // the answer lacks the version of the deletion
	}
	if err != nil {
		return err
	}
	// The read is consistent, so it is not older than what a watch has shown. A hidden Lease may be
	// older than the list without it.
	v, err := s.put(l)
	if err == nil && s.confirmOlder(name, v < before.version && !s.hidden(l)) {
		s.fail(fmt.Errorf("the API server has version %d of the Lease %s/%s, and had version %d before: "+
			"it was restored from a backup, so this process must start again, with empty caches", v, r.namespace, name, before.version))
	}
	return err
}

func reflect(ctx context.Context, from *requests, of metav1.ListOptions, into *store) {
	log := logging.Of(ctx).With("group", from.String())
	quiet := logr.Discard()
	r := toolscache.NewReflectorWithOptions(from.listWatch(of), &coordinationv1.Lease{}, into, toolscache.ReflectorOptions{Name: "shard group " + from.String(), Logger: &quiet})
	backoff, said := firstBackoff, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if time.Since(began) > maxBackoff {
			backoff, said = firstBackoff, ""
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("the Leases of the group cannot be read; it will be retried", "err", err)
		}
		_ = run.Sleep(ctx, backoff+rand.N(backoff))
		backoff = min(2*backoff, maxBackoff)
	}
}

// listWatch lists and watches these Leases. A request that ignores its context is not awaited.
func (r *requests) listWatch(of metav1.ListOptions) *toolscache.ListWatch {
	limit := func(o *metav1.ListOptions) { o.FieldSelector, o.LabelSelector = of.FieldSelector, of.LabelSelector }
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			limit(&o)
			return run.Call(ctx, r.watches, requestLimit, func(ctx context.Context) (runtime.Object, error) { return r.client.List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			limit(&o)
			w, stop, err := run.Open(ctx, r.watches, requestLimit, func(ctx context.Context) (watch.Interface, error) { return r.client.Watch(ctx, o) }, lease.EndWatch)
			if err != nil {
				return nil, err
			}
			return stream{w, stop}, nil
		},
	}
}

// stream is a watch whose Stop returns soon, even if its answer ignores the end of its context.
type stream struct {
	watch.Interface

	stop func()
}

// Stop implements watch.Interface.
func (s stream) Stop() { s.stop() }

// Pauses between two attempts to read the Leases, plus up to as much at random.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)
