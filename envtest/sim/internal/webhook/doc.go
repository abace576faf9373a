// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook calls webhooks, over HTTPS or in process. A request that needs an answer fails
// with Pending, is served again after the call, and finds the answer.
package webhook
