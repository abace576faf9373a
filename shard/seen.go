// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// seen has the Leases of the group as the watches show them, and times their records. Only the
// monotonic clock counts, as in package leaderelection.
type seen struct {
	group string
	least time.Duration // that a Lease is respected
	began time.Time
	wake  chan struct{} // has an element after a change

	mu     sync.Mutex // guards what follows
	leases map[string]sight
}

// sight is a Lease as last seen. Its Lease is shared: do not change it.
type sight struct {
	lease   *coordinationv1.Lease // nil: there is none
	version uint64                // of the Lease, or of its absence
	at      time.Time             // when this process saw it change
	// released is the version at which its holder last released it, because its work had returned.
	released uint64
	rival    lease.Rival
}

func newSeen(group string, least time.Duration) *seen {
	return &seen{group: group, least: least, began: time.Now(), wake: make(chan struct{}, 1), leases: map[string]sight{}}
}

// look returns what is known of a Lease. A Lease that was never seen is timed from now on.
func (s *seen) look(name string) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.leases[name]
	if !ok {
		of = sight{at: time.Now(), rival: lease.Rival{Least: s.least}}
		s.leases[name] = of
	}
	return of
}

// members returns the Leases of members that exist, by name.
func (s *seen) members() (all []*coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, of := range s.leases {
		if name != s.group && of.lease != nil {
			all = append(all, of.lease)
		}
	}
	slices.SortFunc(all, func(a, b *coordinationv1.Lease) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// note records a Lease, or its absence as nil, unless something newer is known.
func (s *seen) note(name string, l *coordinationv1.Lease, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.leases[name]
	if !ok {
		of.rival.Least = s.least
	}
	if ok && version <= of.version {
		return
	}
	of.lease, of.version, of.at = l, version, time.Now()
	if l != nil && lease.Released(l) {
		of.released = version
	}
	of.rival.See(limited(l, s.least), held(l), time.Since(s.began))
	s.leases[name] = of
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// limited returns a Lease that another process holds, without the duration that only the group
// uses: it was edited by hand.
func limited(l *coordinationv1.Lease, d time.Duration) *coordinationv1.Lease {
	if l == nil || lease.Duration(l) < lease.NoLimit {
		return l
	}
	l = l.DeepCopy()
	seconds := int32(d / time.Second) //nolint:gosec // validated
	l.Spec.LeaseDurationSeconds = &seconds
	return l
}

// left is how long a Lease is still respected: until its last record has not changed for its
// duration. It is not positive if another process may acquire it.
func (s *seen) left(of sight) time.Duration {
	if of.version == 0 { // never seen
		return s.least - time.Since(of.at)
	}
	return of.rival.Left(time.Since(s.began))
}

// store feeds seen from a reflector. Only the reflector's goroutine uses it.
type store struct {
	of    *seen
	names map[string]bool
}

var _ toolscache.ReflectorStore = (*store)(nil)

func (s *store) Add(o any) error    { return s.put(o) }
func (s *store) Update(o any) error { return s.put(o) }
func (s *store) Resync() error      { return nil }

func (s *store) put(o any) error {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil
	}
	v, err := parseVersion(l.ResourceVersion)
	if err != nil {
		return err
	}
	s.names[l.Name] = true
	s.of.note(l.Name, l, v)
	return nil
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
	s.of.note(l.Name, nil, v)
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
			s.of.note(name, nil, v)
		}
	}
	return nil
}

// watch follows the Leases of the group until ctx is done.
func (g *Group) watch(ctx context.Context) {
	group := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, g.name).String()}
	var running sync.WaitGroup
	running.Go(func() { g.reflect(ctx, group, &store{of: g.seen, names: map[string]bool{g.name: true}}) })
	running.Go(func() { g.reflect(ctx, g.requests.ofMembers(), &store{of: g.seen, names: map[string]bool{}}) })
	running.Wait()
}

func (g *Group) reflect(ctx context.Context, of metav1.ListOptions, into *store) {
	log := logging.Of(ctx).With("group", g.String())
	quiet := logr.Discard()
	r := toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = of.FieldSelector, of.LabelSelector
			return g.requests.client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = of.FieldSelector, of.LabelSelector
			return g.requests.client.Watch(ctx, o)
		},
	}, &coordinationv1.Lease{}, into, toolscache.ReflectorOptions{Name: "shard group " + g.String(), Logger: &quiet})
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

// Pauses between two attempts to read the Leases, plus up to as much at random.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)
