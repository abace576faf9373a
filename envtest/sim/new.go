// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TB is what the sim needs of a testing.TB, such as a *testing.T. Programs that use a [Server]
// without a test do not compile package testing.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

// New starts a server for one test and returns a configuration that reaches it. Every client takes
// it: typed, dynamic, metadata and discovery clients, and controller-runtime's clients.
//
// The server serves the built-in kinds of Kubernetes, the kinds that the scheme adds to them, and
// the kinds of CustomResourceDefinitions among the objects. Without a CustomResourceDefinition, a
// custom kind is namespaced, its plural follows the usual rule, and it has a status subresource if
// its Go type has a Status field. The versions of a kind share their objects.
//
// The objects are stored first, in any order and with their status, uid and creation time. They may
// be typed, unstructured, or lists. Their namespaces are made.
//
// The server ends with the test: open watches end, and later requests fail. In a synctest bubble,
// pass the bubble's t. New ends the test if an argument is invalid. Of returns the server itself.
func New(t TB, scheme *runtime.Scheme, objects ...runtime.Object) *rest.Config {
	t.Helper()
	s := NewServer()
	t.Cleanup(s.Close)
	if err := s.Load(scheme, objects...); err != nil {
		t.Fatal(err)
	}
	return s.Config()
}

// Of returns the server of a configuration that New or Server.Config returned, for rules and
// assertions. It returns nil for any other configuration, such as one with a wrapped Transport:
// call it with the result of New.
func Of(cfg *rest.Config) *Server {
	if cfg == nil {
		return nil
	}
	s, _ := cfg.Transport.(*Server)
	return s
}
