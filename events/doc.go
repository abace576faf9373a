// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package events records Kubernetes events, which kubectl describe shows, with the API
// events.k8s.io/v1.
//
//	rec := events.For(mgr, events.Options{}) // once, at wiring time
//	rec.Eventf(ctx, obj, events.Normal, "Created", "CreateConfigMap", "created ConfigMap %s", name)
//
// Eventf returns at once, without a request or an error. The operator needs the right to create and
// patch events:
//
//	// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
//
// It needs this right in the namespace of the object. Events about cluster-scoped objects are in
// default, or in [Options].Namespace.
//
// # Series
//
// Calls for the same object with the same type, reason and action are one series. The version of
// the object and the note do not matter. The first call creates an Event. Later calls patch its
// series.count and series.lastObservedTime.
//
// The API server does not let a note change, so each note of a series has an Event of its own. One
// request counts all calls that wait, with the newest note. The name of an Event follows from the
// series and the note. So another replica, or a restarted program, continues the count.
//
// # Limits
//
// The limits delay events and lose none: the next request counts a call that waits.
//
//   - For one object, 25 requests at once, then one every 5 minutes, as in client-go's older
//     recorder. The last 5 are for new series, so that repeats do not delay a new reason.
//   - For all objects, 100 requests at once, then 50 a second, as in the kubelet.
//   - The recorder keeps 4,096 series and forgets the oldest. If all of them wait to be sent, calls
//     for a new series are dropped.
//   - A note has at most 1,024 bytes. A longer one is cut and ends in "…".
//   - Requests are sent one after another, and each may take 10 seconds.
//   - A failed request is tried again after 1 s, then after twice the time, 8 times in all. A
//     Retry-After of up to a minute delays it further.
//
// # Objects that keep failing
//
// A controller does not record its errors as events: the first ones are often temporary. See
// [Failing].
//
// # Dropped events
//
// [hook.EventDropped] counts the calls that no Event will show. The log has one line for each
// kind of mistake, and for each namespace without the right, up to 100 of each kind. Events are
// dropped
//
//   - if an argument is invalid, such as an empty reason
//   - if the operator may not write events; the log names the missing rule and the namespace
//   - if the namespace is gone or terminating, which is logged only for Options.Namespace
//   - if the API server rejects the event, or requests fail too often
//   - if too many series wait
//   - if their term of leadership is lost
//   - if they are recorded after the work of their term has returned
//   - if they are recorded after [Recorder.Close], or still wait when its context ends.
//
// # Requests
//
// Requests carry the term of leadership of the recording context. They carry term.Without if there
// is none, or if the work of the term has returned: the Lease may be another replica's by now. They
// carry no ledger, so no key waits for them.
//
// # Guarantees
//
//   - N1: The requests for one object stay within the limit, for any number of calls. The last
//     send may exceed it by 2, or by 7 if another process writes the same Event. A flush sends
//     each waiting series. Details: the limit is the one above. A send takes up to 3 requests, or
//     8.
//   - N2: The counts of the Events of a series add up to its calls, less those reported as
//     dropped, even if answers are lost.
//   - N3: When [Recorder.Flush] returns nil, each earlier call is stored or reported as dropped.
//     A manager flushes for at most 2 s before it releases a Lease. What waits is sent after it,
//     until the end of Run.
//   - N4: No event of a lost term is stored. A term is not lost if its work has returned before.
//   - N5: [Recorder.Eventf] makes no request, waits for none, and keeps bounded memory. Details:
//     so does Event.
//
// Stability: settling.
package events
