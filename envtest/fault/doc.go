// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault is a proxy that stands before an API server, so that tests can break what they like: it delays, holds,
// refuses, cuts, freezes and loses requests and answers, by rules. Any client can use it, with HTTP/1.1 and HTTP/2, JSON
// and protobuf; it changes nothing but what a rule says.
//
//	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
//	if err != nil { ... }
//	defer proxy.Stop()
//	cfg, err := proxy.Config()           // for the program under test
//	late := proxy.Add(fault.Rule{        // its watches of config maps run half a second late
//		Match: fault.Match{Verbs: []string{"watch"}, Resources: []string{"configmaps"}},
//		Lag:   500 * time.Millisecond,
//	})
//	defer late.Remove()
//
// What is often wanted:
//
//   - a request held and released: Rule{Match: m, Hold: true, Times: 1}, then Fault.WaitHeld, then Fault.Release
//   - a watch that shows an event when the test says so: Rule{Match: m, Freeze: true}, then Fault.WaitHeld and Fault.Release
//   - a write that succeeds and whose client never learns: Rule{Match: m, Lose: true, Times: 1}
//   - every watch cut after 200 ms: Rule{Match: m, CutAfter: 200 * time.Millisecond}; those that are open, now: Proxy.Cut
//   - an API server that refuses connections, and is back at the same address: Proxy.Down, Proxy.Up
//   - one replica cut off by a network that swallows everything: Rule{Match: Match{Config: cfg}, Hold: true, Freeze: true};
//     by one that resets connections: Rule{Match: Match{Config: cfg}, Cut: true} and Proxy.Cut(Match{Config: cfg})
//   - requests that are in the network when their client is killed, and arrive late: with Deliver: true in the rule that holds them
//   - requests counted: Proxy.Counts, or a Rule without effects with Fault.Hits and Fault.WaitHits
//
// # Who the client is
//
// TLS ends at the proxy, and client certificates with it. Therefore [Proxy.ConfigOf] gives a client a token that only the
// proxy knows, and the proxy sends the client's requests with the credentials that ConfigOf was given. Tokens that the
// proxy does not know, such as those of service accounts, are passed on.
//
// # Limits
//
// Upgraded connections (exec, attach, port-forward) are answered with 501. HTTP/2 has one connection for many requests:
// a cut resets the stream of one request, only [Proxy.Down] and [Proxy.Stop] break connections. When the API server cannot
// be reached, the client's connection is cut. Go's transport sends no more than the API server's limit of requests on a
// connection at a time, and opens another one; so it does towards the proxy, which allows 250.
package fault
