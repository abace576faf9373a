// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// registry has the Leases of the group as the watches show them, and times their records. Only the
// monotonic clock counts, as in package leaderelection.
type registry struct {
	group string
	least time.Duration // that a Lease is respected
	began time.Time
	wake  chan struct{} // has an element after a change

	mu     sync.Mutex // guards what follows
	leases map[string]entry
	failed error // why nothing here is true any more
}

// entry is a Lease as last seen. Its Lease is shared: do not change it.
type entry struct {
	lease     *coordinationv1.Lease // nil: there is none
	version   uint64                // of the Lease, or of its absence
	at        time.Time             // when this process saw it change
	heartbeat heartbeat
	// released is the version at which its holder last released it, because its work had returned.
	released uint64
	rival    lease.Rival
	doubted  time.Time // when a read returned an older version, and no other read has since
}

// get returns what is known of a Lease. A Lease that was never seen is timed from now on.
func (s *registry) get(name string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.leases[name]
	if !ok {
		of = entry{at: time.Now(), rival: lease.Rival{Least: s.least}}
		s.leases[name] = of
	}
	return of
}

// members returns the Leases of members that exist, by name.
func (s *registry) members() (all []entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, of := range s.leases {
		if name != s.group && of.lease != nil {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.lease.Name, b.lease.Name) })
	return all
}

// record stores a Lease, or its absence as nil, unless something newer is known.
func (s *registry) record(name string, l *coordinationv1.Lease, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.leases[name]
	if !ok {
		of.rival.Least = s.least
	}
	found := of.lease == nil && s.hidden(l)
	if ok && version <= of.version && !found {
		return
	}
	record := l
	if l == nil && name == s.group {
		record = lastRecord(of.lease, version)
	}
	of.lease, of.version, of.at, of.heartbeat = l, version, time.Now(), heartbeatOf(l)
	released := l != nil && lease.Released(l)
	forged := released && name != s.group && of.heartbeat.author != oneAuthor
	if released && !forged {
		of.released = version
	}
	of.rival.See(limited(record, s.least, forged), held(record), time.Since(s.began))
	s.leases[name] = of
	run.Poke(s.wake)
}

// lastRecord returns the group's Lease as its leader may have renewed it, unseen, just before the
// deletion. It is nil if no leader held the Lease.
func lastRecord(before *coordinationv1.Lease, deleted uint64) *coordinationv1.Lease {
	if before == nil || held(before) || lease.Holder(before) == "" {
		return nil
	}
	last := before.DeepCopy()
	last.ResourceVersion = strconv.FormatUint(deleted, 10)
	return last
}

// confirmOlder records whether a read returned an older version of a Lease than the known one. It
// reports whether an earlier read did, too, and none between the two returned a newer version.
func (s *registry) confirmOlder(name string, older bool) (confirmed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.leases[name]
	switch {
	case !older:
		of.doubted = time.Time{}
	case of.doubted.IsZero():
		of.doubted = time.Now()
	default:
		return time.Since(of.doubted) >= secondRead
	}
	s.leases[name] = of
	return false
}

// fail ends this process's membership.
func (s *registry) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	run.Poke(s.wake)
}

// trouble returns the error of fail.
func (s *registry) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// hidden reports whether a Lease is a member's, and has lost its label. The watch by the label
// takes it for deleted.
func (s *registry) hidden(l *coordinationv1.Lease) bool {
	return l != nil && l.Name != s.group && l.Labels[GroupLabel] != s.group
}

// put records a Lease that exists, and returns its version.
func (s *registry) put(l *coordinationv1.Lease) (version uint64, err error) {
	if version, err = parseVersion(l.ResourceVersion); err == nil {
		s.record(l.Name, l, version)
	}
	return version, err
}

// limited returns a Lease without a duration that was written by hand: the one of a release, or the
// one that only the group's Lease has.
func limited(l *coordinationv1.Lease, d time.Duration, forged bool) *coordinationv1.Lease {
	if l == nil || lease.Duration(l) < lease.NoLimit && !forged {
		return l
	}
	l = l.DeepCopy()
	l.Spec.LeaseDurationSeconds = new(int32(d / time.Second)) //nolint:gosec // validated
	return l
}

// left is how long a Lease is still respected: until its last record has not changed for its
// duration. It is not positive if another process may acquire it.
func (s *registry) left(of entry) time.Duration {
	if of.version == 0 { // never seen
		return s.least - time.Since(of.at)
	}
	return of.rival.Left(time.Since(s.began))
}
