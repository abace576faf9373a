// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault is a proxy in front of an API server for tests of failures. Rules delay, hold,
// refuse, change, cut, freeze and lose requests and answers. It serves any client, with HTTP/1.1 or
// HTTP/2, and forwards other requests unchanged.
//
//	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
//	if err != nil { ... }
//	defer proxy.Stop()
//	cfg, err := proxy.Config()    // for the program under test
//	late := proxy.Add(fault.Rule{ // delays its watches of config maps by half a second
//		Match: fault.Match{Verbs: []string{"watch"}, Resources: []string{"configmaps"}},
//		Lag:   500 * time.Millisecond,
//	})
//	defer late.Remove()
//
// Common uses:
//
//   - Hold a request and release it: Rule{Match: m, Hold: true, Times: 1}, then Fault.WaitHeld and
//     Fault.Release.
//   - Deliver a watch event when the test decides: Rule{Match: m, Freeze: true}, then
//     Fault.WaitHeld and Fault.Release.
//   - Let a write succeed and lose its answer: Rule{Match: m, Lose: true, Times: 1}.
//   - Cut every watch after 200 ms: Rule{Match: m, CutAfter: 200 * time.Millisecond}. Proxy.Cut
//     cuts the open ones now.
//   - Refuse connections, and come back at the same address: Proxy.Down, Proxy.Up.
//   - Isolate one replica by a network that drops everything: Rule{Match: Match{Config: cfg}, Hold:
//     true, Freeze: true}.
//   - Isolate it by connection resets: Rule{Match: Match{Config: cfg}, Cut: true} and
//     Proxy.Cut(Match{Config: cfg}).
//   - Deliver requests late, after their client was killed: add Deliver: true to the rule that
//     holds them.
//   - Change a request or an answer, or answer in code: Rule{Match: m, Change: f}.
//   - Count requests: Proxy.Counts, or a Rule without effects with Fault.Hits and Fault.WaitHits.
//
// Without a proxy and sockets, [Rules.Transport] applies the same rules to a client's transport.
// Package envtest/sim takes them, too.
//
// # Credentials
//
// TLS, and with it client certificates, ends at the proxy. [Proxy.ConfigOf] therefore gives a
// client a token that only the proxy knows, in place of the credentials. The proxy forwards other
// tokens, such as a service account's.
//
// # Limits
//
//   - Upgraded connections (exec, attach, port-forward) are answered with 501.
//   - With HTTP/2, a cut resets only the stream of a request; [Proxy.Down] and [Proxy.Stop] break
//     connections.
//   - If the API server is unreachable, the client's connection is cut.
//   - The proxy allows 250 concurrent requests per connection, and the API server has a limit too.
//     Go's transport opens another connection at the limit.
//
// Stability: settling.
package fault
