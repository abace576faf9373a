// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
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
	slices.SortFunc(all, func(a, b *coordinationv1.Lease) int { return strings.Compare(a.Name, b.Name) })
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

// put notes a Lease that exists, and returns its version.
func (s *seen) put(l *coordinationv1.Lease) (version uint64, err error) {
	if version, err = parseVersion(l.ResourceVersion); err == nil {
		s.note(l.Name, l, version)
	}
	return version, err
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
