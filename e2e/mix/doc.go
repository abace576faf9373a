// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package mix tests a whole operator in a random mix of troubles.
//
// Two replicas with a Lease keep a ConfigMap and a Secret for each Board, a custom resource with a
// finalizer. They watch the Secrets' metadata and read the Secrets, so that two informers show one
// resource. Persons create, change and delete boards. Meanwhile several troubles come at once,
// drawn by a seed. At the end every object must be right, nothing may have been created twice, and
// the log must name each trouble once. Each kind of trouble must have had an effect during the run.
//
// The rounds run on the sim in virtual time, from seed 1. With SETPOINT_FULL=1 there are 200 of
// them from a random seed, and 20 on the real control plane. A failure prints the seed, and the
// command that repeats it.
package mix
