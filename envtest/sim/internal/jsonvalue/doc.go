// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonvalue compares, encodes and changes JSON values in the form of unstructured objects.
package jsonvalue
