// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package server serves HTTP handlers on one listener: with TLS whose certificates are reloaded,
// authorization by the API server, limits for clients, health endpoints and a graceful stop.
//
// # Usage
//
// A manager has a server, see manager.Options.Server and manager.Options.Health. A program without
// a manager runs one itself:
//
//	s, err := server.New(server.Options{Address: ":9443", CertDir: "/etc/website/tls"})
//	err = s.Handle("POST /validate", validator)
//	err = s.Open(ctx)
//	err = s.Serve(ctx, work) // accepts until ctx is done; requests under way have until work ends
//
// # Limits
//
// A server bounds what its clients may take: 250 connections, of which a new one displaces an idle
// one, first of the client that has the most; 64 KiB of header, within 10 s; 30 s for a body, and
// for each part of up to 64 KiB of an answer; 90 s without a request. A handler may run for any
// time. At a stop, a client that a handler waits for has half a second in all.
// net/http.ResponseController changes the deadline of a body.
//
// # Guarantees
//
// Those of package manager: M1 and M3 count a server's connections, requests and checks.
//
// # Concurrency
//
// All methods are safe for concurrent use once Open has returned. New and Open start nothing; Serve
// joins what it started.
package server
