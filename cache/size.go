// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/storage"
)

// A walk over many objects is repeated only after a while: client-go has no other way to count, and
// locks the store for the walk. 250,000 objects take 20 to 40 ms.
const (
	manyObjects  = 10_000
	recountAfter = time.Minute
)

// size walks over a store.
func size(s toolscache.Store) (objects int, bytes int64) {
	keys := s.ListKeys()
	return len(keys), estimate(s, keys)
}

// sizes is the last walk over a store.
type sizes struct{ last atomic.Pointer[walk] }

type walk struct {
	at      time.Time
	objects int
	bytes   int64
}

// recent returns the size for a scrape of metrics, with bytes only of Records: others take long.
func (w *sizes) recent(s toolscache.Store, records bool) (objects int, bytes int64) {
	last := w.last.Load()
	if last == nil || last.objects <= manyObjects || time.Since(last.at) >= recountAfter {
		keys := s.ListKeys()
		last = &walk{at: time.Now(), objects: len(keys)}
		if records {
			last.bytes = estimate(s, keys)
		}
		w.last.Store(last)
	}
	return last.objects, last.bytes
}

// estimate returns the size of all objects, from at most 50 of them and about 1 MiB.
func estimate(s toolscache.Store, keys []string) int64 {
	var seen, length int64
	for _, k := range keys[:min(len(keys), 50)] {
		obj, found, err := s.GetByKey(k)
		if err != nil || !found {
			continue
		}
		if n, ok := storage.Size(obj); ok {
			seen, length = seen+1, length+int64(n)
		}
		if length > 1<<20 {
			break
		}
	}
	if seen == 0 {
		return 0
	}
	return length * int64(len(keys)) / seen
}
