// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fieldmanager keeps the managedFields of objects.
package fieldmanager
