// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package sweep shows that an operator survives: it crashes the operator at each of its writes,
// shows it old views, and loses answers. It is for tests.
//
//	func TestSweep(t *testing.T) {
//		sweep.Run(t, sweep.Scenario{
//			Scheme:   scheme,
//			Operator: func(p sweep.Process) (sweep.Operator, error) { return newOperator(p.Config) },
//			Steps: []sweep.Step{
//				{Name: "create", Do: func(ctx context.Context, c *client.Client) error { … }},
//				{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { … }},
//			},
//		})
//	}
//
// Run performs the steps without faults, and learns which writes of the operator have an effect.
// After each step it waits until the operator is idle and nothing changes any more. Then it repeats
// the scenario with one fault at a time: see [Fault]. Each repetition is a subtest with an API
// server of its own (package envtest/sim), in virtual time and in parallel to others.
//
// # What is checked
//
//   - The objects after each step are equal. Times, UIDs, versions and generated names do not
//     count, nor what differs between two runs without faults, at other times and versions.
//   - No object is created or deleted more often than without faults.
//   - After the last step nothing is written any more.
//   - The operator is idle after the last step: no key fails.
//   - No process is refused because it did not see a write of its own: of the same key, if a
//     controller of this module has made both. A program without such controllers may create an
//     object again that exists: names protect it.
//   - No process writes after its Lease has expired.
//   - No two programs change a field to and fro.
//   - The invariants of the scenario hold at every version.
//
// Events and Leases are not compared, and their writes get no faults of their own.
//
// A failed subtest prints a call of [Replay] that repeats it alone, with your scenario. With
// go test -artifacts, it keeps the changes of all objects, the objects, the requests, the Events,
// and a log of the steps, the writes and the programs, in a folder of its own below _artifacts.
//
// # A real control plane
//
// With the environment variable SETPOINT_SWEEP=controlplane, the runs use eight control planes of
// package envtest beside each other, in real time. There, Kubernetes' own controllers run, a fault
// of time takes 1 to 3 seconds, and the Leases of a crashed process are deleted. [Fail],
// [Conflict], [Throttle] and [Restore] are left out. With SETPOINT_KEEP=1, the control plane of a
// failed run stays until the test is interrupted or times out; its kubeconfig is printed.
//
// # Limits
//
//   - A crash is in process: from then on all requests of the incarnation fail, and its context
//     ends. Variables of packages survive it.
//   - Without control planes the operator may open no sockets: it runs in a synctest bubble.
//   - HandleError of k8s.io/apimachinery/pkg/util/runtime sleeps between errors, also of two
//     bubbles: for years. If the operator calls it, drop that in TestMain:
//     runtime.ErrorHandlers = runtime.ErrorHandlers[:1].
//   - Goroutines are not scheduled by sweep. If a write does not come again in three repetitions,
//     its subtest is skipped.
//   - Old views come from the informers. With a write, all are old, or one that shows something of
//     what is written until the operator's next write. Pairs of informers are not tried.
//
// Stability: experimental.
package sweep
