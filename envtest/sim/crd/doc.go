// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package crd gives the simulated API server the schemas of CustomResourceDefinitions. The server
// then validates, defaults and prunes custom objects, with the code and the messages of a real API
// server, including CEL rules. The schemas are published as OpenAPI v3, and decide which list items
// and fields a server-side apply owns.
//
//	cfg := crd.New(t, scheme, websiteCRD, website).Config() // instead of sim.New
//
// The server also evaluates the matchConditions of webhooks.
//
// It is a module of its own because it needs k8s.io/apiextensions-apiserver.
//
// Stability: experimental.
package crd
