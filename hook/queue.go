// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Queue is what a workqueue lets its host observe. Any func may be nil, which turns that observation off. The queue
// calls them without holding its lock, on the goroutine whose call caused the event; calls of several goroutines
// overlap, and two events may be seen in another order than they happened in. A func that panics is recovered,
// counted and reported to Panicked. The funcs should be quick: the caller of the queue waits for them.
//
// The seven standard workqueue metrics follow from these events: adds from Added, queue_duration from Taken,
// work_duration from Settled, retries from Settled (outcomes QueueRetry and QueueAfter) and Delayed, and depth,
// unfinished_work and longest_running_processor from the Stats func that Opened hands over.
type Queue struct {
	// Opened is called once, by the queue's constructor.
	Opened func(QueueOpened)
	// Closed is called once, by the first ShutDown or Drain. Stats may still be called afterwards.
	Closed func(QueueClosed)
	// Added is called when keys became ready: after an add, when a delay is over, when a key that was added while
	// it was held is settled, when a parked key is woken or a paused one resumed.
	Added func(QueueAdded)
	// Delayed is called when a key was given a due time from outside.
	Delayed func(QueueDelayed)
	// Taken is called when a worker has taken a key.
	Taken func(QueueTaken)
	// Settled is called when a worker has settled a key.
	Settled func(QueueSettled)
	// Dropped is called when the queue dropped keys, or adds, instead of delivering them.
	Dropped func(QueueDropped)
	// Misused is called when a call broke the queue's contract and had no effect.
	Misused func(QueueMisused)
	// Panicked is called when a func that the queue was given has panicked. Its own panic is swallowed.
	Panicked func(QueuePanicked)
}

// QueueOpened says that a queue was made.
type QueueOpened struct {
	Queue string
	// Of is the queue itself. It tells apart queues of one name, of which a new one may be opened before the old one is closed.
	Of any
	// Stats returns the queue's current figures. It is cheap, takes the queue's lock for a moment, may be called
	// from any goroutine, and must not be called from within another func of this hook under a lock of its own
	// that the queue's callers also hold.
	Stats func() QueueStats
}

// QueueStats are a queue's figures at one moment.
type QueueStats struct {
	Ready, Waiting, Held, Parked, Paused int
	// ReadyByClass counts the ready keys of each configured class.
	ReadyByClass map[int]int
	// Unfinished is the sum, Longest the longest of the times since which the held keys have been held.
	Unfinished, Longest time.Duration
}

// QueueClosed says that a queue was shut down.
type QueueClosed struct {
	Queue string
	// Of is the queue, as QueueOpened had it.
	Of any
}

// QueueAdded says that Keys keys of one class became ready.
type QueueAdded struct {
	Queue string
	Class int
	Keys  int
}

// QueueDelayed says that a key was given a due time from outside, Delay from now.
type QueueDelayed struct {
	Queue string
	Class int
	Delay time.Duration
}

// QueueTaken says that a key was taken, Waited after it became ready.
type QueueTaken struct {
	Queue   string
	Class   int
	Waited  time.Duration
	Attempt int
}

// QueueOutcome is how a held key was settled.
type QueueOutcome string

// The outcomes, named as the methods of an item.
const (
	QueueDone    QueueOutcome = "Done"
	QueueRetry   QueueOutcome = "Retry"
	QueueAfter   QueueOutcome = "After"
	QueuePark    QueueOutcome = "Park"
	QueueRelease QueueOutcome = "Release"
)

// QueueSettled says that a key, held for Held, was settled.
type QueueSettled struct {
	Queue   string
	Class   int
	Outcome QueueOutcome
	Held    time.Duration
	// Delay is how long the key waits next: for QueueRetry and QueueAfter.
	Delay   time.Duration
	Attempt int
	// Err is what Retry was given.
	Err error
}

// QueueDropped says that Keys keys, or adds, were dropped, and why: "waiting at shutdown", "parked at shutdown",
// "paused at shutdown", "delayed after shutdown", "added after shutdown", "not equal to itself".
type QueueDropped struct {
	Queue string
	Why   string
	Keys  int
}

// QueueMisused says which call broke the contract, and how.
type QueueMisused struct {
	Queue string
	What  string
}

// QueuePanicked says which func panicked, with what, and where.
type QueuePanicked struct {
	Queue string
	Func  string
	Value any
	Stack []byte
}
