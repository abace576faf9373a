// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// How often lock looks before it parks, and for how many turns of an empty loop it waits after each look: together as
// long as Mutex.Lock spins when nothing else could run, about 2 microseconds.
const (
	looks   = 2
	between = 3000
)

// lock locks the queue's lock for a worker, who holds it for some 50 ns and wants it again at once. While other
// goroutines could run, Mutex.Lock parks without looking twice, which costs far more than that at both ends; and
// looking again too soon takes the lock, and all that it guards, from one processor's cache to the other's each time.
func (q *Queue[K]) lock() {
	for range looks {
		if q.mu.TryLock() {
			return
		}
		for range between {
		}
	}
	q.mu.Lock()
}
