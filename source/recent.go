// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
)

// mostDrops is how many drops of a source are remembered, for Explain: 32 KiB.
const mostDrops = 1024

// recentDrops remembers the last events that predicates dropped. It keeps no strings: they may be
// parts of whole objects.
type recentDrops struct {
	mu   sync.Mutex // guards what follows
	seed maphash.Seed
	ring []recentDrop // from the first drop on
	next int
}

type recentDrop struct {
	object, version uint64 // hashes
	at              int64
	predicate       int32
}

func (r *recentDrops) add(e handler.Event, predicate int) {
	at, o := time.Now().UnixNano(), e.Object()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring == nil {
		r.seed, r.ring = maphash.MakeSeed(), make([]recentDrop, mostDrops)
	}
	r.ring[r.next] = recentDrop{maphash.Comparable(r.seed, e.Key()), maphash.String(r.seed, o.GetResourceVersion()), at, int32(predicate)}
	r.next = (r.next + 1) % mostDrops
}

// find returns the last drop of an object, if it was an event of the version.
func (r *recentDrops) find(key types.NamespacedName, version string) (predicate int, at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring == nil {
		return 0, time.Time{}, false
	}
	object := maphash.Comparable(r.seed, key)
	for back := range mostDrops {
		d := &r.ring[(r.next-1-back+mostDrops)%mostDrops]
		if d.at != 0 && d.object == object {
			return int(d.predicate), time.Unix(0, d.at), d.version == maphash.String(r.seed, version)
		}
	}
	return 0, time.Time{}, false
}
