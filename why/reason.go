// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why

// Reason is a code for a cause. Codes are part of the API: a new version may add codes, but does
// not change one.
type Reason string

// Reasons for which an object has no key in a queue.
const (
	// NotWatched: no controller has a source for the kind.
	NotWatched Reason = "NotWatched"
	// OutsideScope: the cache does not keep the object, because of its namespace, name or a
	// selector.
	OutsideScope Reason = "OutsideScope"
	// NotFound: the object does not exist.
	NotFound Reason = "NotFound"
	// Late: the object exists, but the cache does not show it yet.
	Late Reason = "Late"
	// Undecodable: the object does not fit its Go type.
	Undecodable Reason = "Undecodable"
	// Dropped: a predicate drops the object's events.
	Dropped Reason = "Dropped"
	// Unmapped: the handler maps the object to no key.
	Unmapped Reason = "Unmapped"
	// HandlerFailed: the handler or a predicate fails or panics for the object.
	HandlerFailed Reason = "HandlerFailed"
	// HandlerBlocked: the handler or a predicate has not returned for a second.
	HandlerBlocked Reason = "HandlerBlocked"
	// NoAnswer: the predicates and the handler could not be asked in time, because others ask.
	NoAnswer Reason = "NoAnswer"
	// EventWaiting: nothing is due, but events of a source wait for its handler, perhaps one of the
	// object.
	EventWaiting Reason = "EventWaiting"
	// Done: the last Reconcile of the key succeeded, as far as is known, and nothing is due.
	Done Reason = "Done"
	// Terminating: the last Reconcile succeeded, and the object's finalizers delay its deletion.
	Terminating Reason = "Terminating"
	// StatusOld: the last Reconcile succeeded, but the status is of an older generation.
	StatusOld Reason = "StatusOld"
)

// Reasons for which a controller reconciles nothing, or not this key.
const (
	// NotStarted: the controller does not run.
	NotStarted Reason = "NotStarted"
	// NotServed: the API server does not serve a kind that the controller needs.
	NotServed Reason = "NotServed"
	// NotSynced: a cache does not have all of its objects yet.
	NotSynced Reason = "NotSynced"
	// Failing: a list or a watch fails.
	Failing Reason = "Failing"
	// NotLeading: another replica leads, or none.
	NotLeading Reason = "NotLeading"
	// TakingOver: the first Reconcile of a term waits for the writes of the previous leader.
	TakingOver Reason = "TakingOver"
	// OtherMember: another member of the shard group serves the key's slot.
	OtherMember Reason = "OtherMember"
	// Unserved: no member of the shard group serves the key's slot at the moment.
	Unserved Reason = "Unserved"
	// NoSlot: the key has no slot, so no member serves it.
	NoSlot Reason = "NoSlot"
	// Paused: the controller or the key is paused.
	Paused Reason = "Paused"
)

// Reasons of a key in a queue.
const (
	// Running: a Reconcile of the key is in progress.
	Running Reason = "Running"
	// Slow: it runs for longer than Options.SlowAfter of the controller.
	Slow Reason = "Slow"
	// Queued: the key is ready, and other keys are before it.
	Queued Reason = "Queued"
	// WorkersBusy: the key is ready, but all workers are busy with slow Reconciles.
	WorkersBusy Reason = "WorkersBusy"
	// Scheduled: the last Reconcile succeeded, and the next one is at a known time.
	Scheduled Reason = "Scheduled"
	// AwaitsOwnWrites: the key waits until the caches show what it wrote.
	AwaitsOwnWrites Reason = "AwaitsOwnWrites"
	// AwaitsCaches: the key waits until its caches are current.
	AwaitsCaches Reason = "AwaitsCaches"
	// HotLoop: the key keeps making itself due, and is slowed down.
	HotLoop Reason = "HotLoop"
	// Fight: the key and another writer overwrite each other's changes, and the key is slowed down.
	Fight Reason = "Fight"
)

// Reasons of a key whose last Reconcile failed, by its error. They are also the label reason of the
// metric setpoint_failing_keys.
const (
	// Terminal: the error is a terminal one, which is not retried.
	Terminal Reason = "Terminal"
	// GaveUp: the key failed Options.MaxAttempts times and is not retried.
	GaveUp Reason = "GaveUp"
	// Panicked: the Reconcile panicked.
	Panicked Reason = "Panicked"
	// TimedOut: the Reconcile exceeded Options.Deadline of the controller, or a request its time.
	TimedOut Reason = "TimedOut"
	// Forbidden: the API server refused a request for lack of rights.
	Forbidden Reason = "Forbidden"
	// Denied: an admission webhook or policy refused a write.
	Denied Reason = "Denied"
	// Invalid: the API server rejected an object as invalid.
	Invalid Reason = "Invalid"
	// Conflict: other writers changed the object, or created it, before.
	Conflict Reason = "Conflict"
	// Throttled: the API server asked for a pause (429), or a request waited for one.
	Throttled Reason = "Throttled"
	// Missing: the Reconcile needs an object that does not exist.
	Missing Reason = "Missing"
	// KindMissing: the Reconcile needs a kind that the API server does not serve.
	KindMissing Reason = "KindMissing"
	// NamespaceTerminating: the namespace is being deleted.
	NamespaceTerminating Reason = "NamespaceTerminating"
	// Unavailable: the API server, or a webhook that it calls, does not answer.
	Unavailable Reason = "Unavailable"
	// Fenced: a request was refused because the term of leadership is over.
	Fenced Reason = "Fenced"
	// Error: any other error.
	Error Reason = "Error"
)
