// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers does in one step the later work of controllers in a real cluster: garbage
// collection, the deletion of namespaces, and the life of CustomResourceDefinitions. It begins with
// Controllers.Settle.
package controllers
