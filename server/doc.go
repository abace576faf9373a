// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package server serves HTTP handlers on one listener. It provides TLS with certificate reload,
// authorization by the API server, limits for clients, health endpoints and a graceful stop.
//
//	s, err := server.New(server.Options{Address: ":9443", CertDir: "/etc/website/tls"})
//	err = s.Handle("POST /validate", validator)
//	err = s.Open(ctx)
//	err = s.Serve(ctx, work) // accepts until ctx ends; requests in flight may run until work ends
//
// A manager has its own servers: see manager.Options.
//
// # Limits
//
//	connections             250; a new one displaces an idle one, first of the client with the most
//	HTTP/2 requests         100 at once on each connection
//	header                  64 KiB, within 10 s
//	body                    30 s; net/http.ResponseController changes this deadline
//	answer                  30 s for each part of up to 64 KiB
//	idle connection         90 s
//	a handler               none
//	a handler at a stop     waits for its client for 0.5 s in total
//
// # Guarantees
//
// M1 and M3 of package manager include the connections, requests and checks of a server.
//
// # Concurrency
//
// All methods are safe for concurrent use once Open has returned. New and Open start nothing. Serve
// joins what it starts.
package server
