// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Queue observes a workqueue, on the goroutine whose call caused the event. Two events may be
// reported in another order than they happened. A panic of a function is recovered, counted and
// reported to Panicked.
//
// The seven standard workqueue metrics follow from these events:
//
//	adds                                        Added
//	queue_duration                              Taken
//	work_duration                               Settled
//	retries                                     Settled (QueueRetry and QueueAfter), Delayed
//	depth, unfinished_work, longest_running     Stats of QueueOpened
type Queue struct {
	// Opened is called once, before all other functions, by the queue's constructor.
	Opened func(QueueOpened)
	// Closed is called once, by the first ShutDown or Drain. Stats still works then.
	Closed func(QueueClosed)
	// Added is called when keys become ready: after an add or a delay, after the settle of a key
	// that was added while held, and when a key is woken or resumed.
	Added func(QueueAdded)
	// Delayed is called after an add with a delay (AddOptions.After).
	Delayed func(QueueDelayed)
	// Taken is called when a worker takes a key, Settled when it gives the key back.
	Taken   func(QueueTaken)
	Settled func(QueueSettled)
	// Dropped is called when keys or adds are dropped: at a shutdown or after it.
	Dropped func(QueueDropped)
	// Misused is called when a call violates the queue's contract. The call has no effect.
	Misused func(QueueMisused)
	// Panicked is called when a function of the host, such as a hook, has panicked. A panic of
	// Panicked itself is ignored.
	Panicked func(QueuePanicked)
}

// QueueOpened reports a new queue.
type QueueOpened struct {
	// Queue is the queue's name, here and in the other events.
	Queue string
	// Of is the *workqueue.Queue. Queues of the same name may overlap.
	Of any
	// Stats returns the current counts, under the queue's lock. It is safe for concurrent use. Do
	// not call it while you hold a lock that the functions of Queue take.
	Stats func() QueueStats
}

// QueueStats are the current counts of a queue.
type QueueStats struct {
	// These count keys: due, due later, taken, parked, and paused.
	Ready, Waiting, Held, Parked, Paused int
	// ReadyByClass counts the ready keys by configured class.
	ReadyByClass map[int]int
	// ReadyByTenant counts the ready keys by tenant, if the queue has tenants.
	ReadyByTenant map[string]int
	// Unfinished is the sum of the times since which keys are held, Longest the longest.
	Unfinished, Longest time.Duration
}

// QueueClosed reports that a queue was shut down.
type QueueClosed struct {
	Queue string
	// Of is as in QueueOpened.
	Of any
}

// QueueAdded reports that Keys keys of one class became ready.
type QueueAdded struct {
	Queue string
	Class int
	Keys  int
}

// QueueDelayed reports an add of a key that is due in Delay.
type QueueDelayed struct {
	Queue string
	Class int
	Delay time.Duration
}

// QueueTaken reports that a worker took a key, Waited after it became ready.
type QueueTaken struct {
	Queue   string
	Class   int
	Waited  time.Duration
	Attempt int
}

// QueueOutcome is the method that settled a held key.
type QueueOutcome string

// The outcomes have the names of the methods of workqueue.Item.
const (
	QueueDone    QueueOutcome = "Done"
	QueueRetry   QueueOutcome = "Retry"
	QueueAfter   QueueOutcome = "After"
	QueueGiveUp  QueueOutcome = "GiveUp"
	QueuePark    QueueOutcome = "Park"
	QueueRelease QueueOutcome = "Release"
)

// QueueSettled reports that a key was settled after Held.
type QueueSettled struct {
	Queue   string
	Class   int
	Outcome QueueOutcome
	Held    time.Duration
	// Delay is how long the key waits next, for QueueRetry and QueueAfter.
	Delay   time.Duration
	Attempt int
	// Err is the argument of Retry or GiveUp.
	Err error
}

// QueueDropped reports that Keys keys or adds were dropped.
type QueueDropped struct {
	Queue string
	// Why is "waiting at shutdown", "parked at shutdown", "paused at shutdown", "delayed after
	// shutdown", "added after shutdown" or "not equal to itself".
	Why  string
	Keys int
}

// QueueMisused reports a call that violates the queue's contract. What describes it.
type QueueMisused struct {
	Queue string
	What  string
}

// QueuePanicked reports a panic with the name of the function, the value and the stack.
type QueuePanicked struct {
	Queue string
	Func  string
	Value any
	Stack []byte
}
