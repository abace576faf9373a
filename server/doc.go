// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package server serves HTTP handlers on one listener. It provides TLS with certificate reload,
// authorization by the API server, limits for clients, health endpoints and a graceful stop.
//
//	s, err := server.New(server.Options{Address: ":9443", CertDir: "/etc/website/tls"})
//	s.Handle("POST /validate", validator)
//	err = s.Open(ctx)
//	err = s.Serve(ctx, work) // accepts until ctx ends; requests in flight may run until work ends
//
// With [Add], [AddHealth] and [AddMetrics], a manager opens and runs a server.
//
// # Limits
//
//	connections             250; see below
//	HTTP/2 requests         100 at once on each connection
//	header                  64 KiB, within 10 s
//	body                    30 s; net/http.ResponseController changes this deadline
//	answer                  30 s for each part of up to 64 KiB
//	idle connection         90 s
//	a handler               none
//	a handler at a stop     waits for its client for 0.5 s in total
//
// At 250 connections, a new one displaces another that is idle or waits for its client: first of
// the client with the most, first one without a request, first an old one. A client is an IPv4
// address or an IPv6 /64. A connection that was accepted, or had a request, within the last second
// is displaced only by a client with fewer connections, and a client with more displaces none.
// Otherwise the new one waits, for at most 10 s; 250 can wait, and a further one displaces any of
// the client with the most. So connections that come again and again delay the API server's calls
// but do not end them: any number from another address, and up to 500 from its own.
//
// # Guarantees
//
// M1 and M3 of package manager include the connections, requests and checks of a server.
//
// # Concurrency
//
// All methods are safe for concurrent use once Open has returned. New and Open start nothing. Serve
// joins what it starts.
//
// Stability: settling.
package server
