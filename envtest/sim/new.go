// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
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

// New starts a server for one test. Every client takes its [Server.Config]: typed, dynamic,
// metadata and discovery clients, and controller-runtime's clients.
//
// The server serves the built-in kinds of Kubernetes, the kinds that the scheme adds to them, and
// the kinds of CustomResourceDefinitions among the objects. Without a CustomResourceDefinition, a
// custom kind is namespaced, its plural follows the usual rule, and it has a status subresource if
// its Go type has a Status field. A definition that is created later replaces that. The versions of
// a kind share their objects.
//
// The objects are stored first, in any order and with their status, uid and creation time. They may
// be typed, unstructured, or lists. Their namespaces are made.
//
// The server ends with the test: open watches end, and later requests fail. In a synctest bubble,
// pass the bubble's t. New ends the test if an argument is invalid.
func New(t TB, scheme *runtime.Scheme, objects ...runtime.Object) *Server {
	t.Helper()
	s := NewServer()
	t.Cleanup(s.Close)
	if err := s.Load(scheme, objects...); err != nil {
		t.Fatal(err)
	}
	return s
}

// Load serves the kinds of the scheme and stores the objects, as described for New. It stops at the
// first invalid object.
func (s *Server) Load(scheme *runtime.Scheme, objects ...runtime.Object) error {
	if scheme == nil {
		return errors.New("sim: the scheme is nil; pass the one that your clients use, such as client-go's scheme.Scheme")
	}
	return s.loader.Load(scheme, objects)
}
