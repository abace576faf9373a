// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package connection manages the connections of a rest.Config. client-go prepares the dialer, the
// TLS configuration and the proxy. This package uses them for transports of its own:
//
//   - The Lease has a connection of its own. A request for a Lease that times out closes it, so the
//     next attempt dials.
//   - Dials are bounded. While HTTP/2 connections are full, net/http dials for every waiting
//     request, and then closes most of these connections.
//   - Pings find a connection without a peer in a time that follows from the RenewDeadline.
//   - The token file and the CA file are read again after a 401 or a certificate error.
//   - Disconnect closes every connection, also if it was opened with an old CA.
package connection
