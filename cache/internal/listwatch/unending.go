// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// endLimit is how long after its initial events a stream may send other events without announcing
// the end of the initial list. kube-apiserver announces it within about 2 seconds.
const endLimit = 30 * time.Second

// initialEvents notices when the initial events of a stream are over. A long list is fine, in any
// order: its objects come once, as ADDED, at versions that existed when the stream was opened.
// Until the bookmark that ends the list, kube-apiserver may also send later events. Only the
// stream's goroutine uses it.
type initialEvents struct {
	over time.Time // when the first later event arrived; zero before

	// The following are empty until the stream has taken long.
	current string              // a version after the stream was opened
	sent    map[uint64]struct{} // hashes of the names of objects that were ADDED since then
	seed    maphash.Seed
}

// note looks at an event before the end of the initial list.
func (i *initialEvents) note(e watch.Event) {
	if i.over.IsZero() && i.later(e) {
		i.over = time.Now()
		i.sent = nil
	}
}

// later reports whether an event cannot be part of the initial list.
func (i *initialEvents) later(e watch.Event) bool {
	if e.Type != watch.Added {
		return true // another client may have changed an object, or this is an ordinary bookmark
	}
	o, err := meta.Accessor(e.Object)
	if err != nil || i.sent == nil {
		return false
	}
	if object.Before(i.current, o.GetResourceVersion()) {
		return true
	}
	name := maphash.Comparable(i.seed, object.Key(o))
	_, again := i.sent[name]
	i.sent[name] = struct{}{}
	return again
}

// suspect begins to look for events that only versions and names tell from initial ones.
func (i *initialEvents) suspect() {
	if i.sent == nil {
		i.sent, i.seed = map[uint64]struct{}{}, maphash.MakeSeed()
	}
}

// left returns how long the end may still take. overdue reports whether it took too long.
func (i *initialEvents) left() (left time.Duration, overdue bool) {
	if i.over.IsZero() {
		return endLimit, false
	}
	left = endLimit - time.Since(i.over)
	return left, left <= 0
}

func (i *initialEvents) err() error {
	return fmt.Errorf("the API server streams the initial list, but has not announced its end %s after the first later event; "+
		"the objects are listed in pages instead", endLimit)
}

// currentVersion returns the newest version of the target's resource, from a list of one object.
func (a *asker) currentVersion(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, unanswered)
	defer cancel()
	m, err := a.target.Backend.MappingWithin(ctx, a.target.Kind, 0)
	if err != nil {
		return "", err
	}
	list, err := a.readOne(ctx, m, types.NamespacedName{}, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// inspect is called when an initial list has taken long, and again after the returned time. It
// returns an error if the list must be made in another way.
func (s *stream) inspect(ctx context.Context) (again time.Duration, err error) {
	again, overdue := s.begin.left()
	if overdue {
		s.unending.Store(true)
		return 0, s.begin.err()
	}
	s.begin.suspect()
	if s.begin.current == "" && s.versions == nil {
		versions := make(chan string, 1)
		s.versions = versions
		s.asking.Go(func() {
			version, _ := s.currentVersion(ctx) // asked again later
			versions <- version
		})
	}
	return again, nil
}
