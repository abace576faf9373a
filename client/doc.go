// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package client talks to the API server: it loads a configuration, says where a kind is served, and gives typed write
// handles and live reads.
//
// # Usage
//
//	cfg, err := client.LoadConfig("")
//	c, err := client.New(cfg, client.Options{Scheme: scheme, FieldOwner: "website-operator"})
//	deployments := client.For[*appsv1.Deployment](c)
//	_, err = deployments.Apply(ctx, desired)
//
// A [Handle] is a few words wide: make one where it is needed, or keep it. Everything here may be used by any number of
// goroutines at once.
//
// Requests are made with client-go's own typed machinery (gentype): protobuf for built-in kinds, JSON for custom ones. A
// handle asks the API server once for the resource that its kind is served as; a kind that is not served yet is asked
// for again at the next call, so that a CRD may be installed later.
package client
