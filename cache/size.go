// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"encoding/json"
	"time"

	"github.com/setpoint-dev/setpoint/internal/packed"
)

// walk is what a walk over an informer's store found.
type walk struct {
	at      time.Time
	objects int
	bytes   int64
}

// A walk over many objects is repeated only after a while: client-go has no other way to count, and
// locks the store for the walk. 250,000 objects take 20 to 40 ms.
const (
	manyObjects  = 10_000
	recountAfter = time.Minute
)

// size walks over the store.
func (i *informer) size() (objects int, bytes int64) {
	keys := i.store().ListKeys()
	return len(keys), i.estimate(keys)
}

// recentSize returns the size for a scrape of metrics, with bytes only of packed objects.
func (i *informer) recentSize() (objects int, bytes int64) {
	last := i.walked.Load()
	if last == nil || last.objects <= manyObjects || time.Since(last.at) >= recountAfter {
		keys := i.store().ListKeys()
		last = &walk{at: time.Now(), objects: len(keys)}
		if i.codec != nil {
			last.bytes = i.estimate(keys)
		}
		i.walked.Store(last)
	}
	return last.objects, last.bytes
}

// estimate returns the size of all objects, from at most 50 of them and about 1 MiB.
func (i *informer) estimate(keys []string) int64 {
	var seen, length int64
	for _, k := range keys[:min(len(keys), 50)] {
		obj, found, err := i.store().GetByKey(k)
		if err != nil || !found {
			continue
		}
		if p, ok := obj.(*packed.Object); ok {
			seen, length = seen+1, length+int64(p.Size())
		} else if text, err := json.Marshal(obj); err == nil {
			seen, length = seen+1, length+int64(len(text))
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
