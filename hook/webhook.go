// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// WebhookRequest reports a request for admission or conversion.
type WebhookRequest struct {
	// Path is the path of the URL, which identifies the webhook.
	Path    string
	Webhook string
	// Conversion reports a request for conversion. Otherwise it is for admission.
	Conversion bool
}

// WebhookAnswer reports an answer.
type WebhookAnswer struct {
	WebhookRequest

	// Code is the HTTP status. The API server applies the failure policy unless it is 200.
	Code int
	// Allowed reports that an admission request was allowed, or that all objects were converted.
	Allowed bool
	// Reason is why a request was rejected, such as Invalid or Forbidden, or empty.
	Reason string
	// Panicked reports that the function has panicked. Code is 500 then.
	Panicked bool
	Took     time.Duration
}

// WebhookCertificate reports the first use of a server certificate or a CA that the process manages
// for its webhooks.
type WebhookCertificate struct {
	// CA reports a certificate authority. Otherwise it is the certificate of the server.
	CA bool
	// The certificate is valid between these times.
	NotBefore, NotAfter time.Time
}
