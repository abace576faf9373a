// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// QueueOpened reports a new queue, before its other events. Two events of a queue may be sent in
// another order than they happened. The seven standard workqueue metrics follow from them:
//
//	adds                                        QueueAdded
//	queue_duration                              QueueTaken
//	work_duration                               QueueSettled
//	retries                                     QueueSettled (QueueRetry, QueueAfter), QueueDelayed
//	depth, unfinished_work, longest_running     QueueOpened.Stats
type QueueOpened struct {
	// Queue is the queue's name, here and in the other events.
	Queue string
	// Of is the *workqueue.Queue. Queues of the same name may overlap.
	Of any
	// Stats returns the current counts, under the queue's lock. It is safe for concurrent use. Do
	// not call it while you hold a lock that an observer takes.
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

// QueueClosed reports the first ShutDown or Drain of a queue. Its Stats still works then.
type QueueClosed struct {
	Queue string
	// Of is as in QueueOpened.
	Of any
}

// QueueAdded reports that Keys keys of one class became ready: after an add or a delay, after the
// settle of a key that was added while held, and when keys are woken or resumed.
type QueueAdded struct {
	Queue string
	Class int
	Keys  int
}

// QueueDelayed reports an add of a key that is due in Delay (AddOptions.After).
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

// QueueDropped reports that Keys keys or adds were dropped: at a shutdown or after it.
type QueueDropped struct {
	Queue string
	// Why is "waiting at shutdown", "parked at shutdown", "paused at shutdown", "delayed after
	// shutdown", "added after shutdown" or "not equal to itself".
	Why  string
	Keys int
}

// QueueMisused reports a call that violates the queue's contract and has no effect. What describes
// it.
type QueueMisused struct {
	Queue string
	What  string
}

// QueuePanicked reports a panic of a function of the host, such as a hook, with its name, the value
// and the stack. A panic of an observer of QueuePanicked is ignored.
type QueuePanicked struct {
	Queue string
	Func  string
	Value any
	Stack []byte
}
