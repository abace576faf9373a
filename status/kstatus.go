// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

const (
	// Ready is True while the object is as its spec asks for.
	Ready = "Ready"
	// Reconciling is True while the controller works on the object, and else absent.
	Reconciling = "Reconciling"
	// Stalled is True while the controller cannot make progress without help, and else absent.
	Stalled = "Stalled"
)

// Current sets Ready to True and removes Reconciling and Stalled. kstatus then returns Current if
// status.observedGeneration is the object's generation or absent.
func (s *Set) Current(reason, message string) {
	s.True(Ready, reason, message)
	s.Remove(Reconciling)
	s.Remove(Stalled)
}

// InProgress sets Reconciling to True and Ready to False, and removes Stalled. kstatus then returns
// InProgress.
func (s *Set) InProgress(reason, message string) {
	s.False(Ready, reason, message)
	s.True(Reconciling, reason, message)
	s.Remove(Stalled)
}

// Failed sets Stalled to True and Ready to False, and removes Reconciling. kstatus then returns
// Failed, and tools stop waiting. Use it for errors that need a change of the object, and
// InProgress for errors that are retried.
func (s *Set) Failed(reason, message string) {
	s.False(Ready, reason, message)
	s.True(Stalled, reason, message)
	s.Remove(Reconciling)
}
