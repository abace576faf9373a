// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Program controlplane is a Kubernetes control plane in one file: etcd's embedded server, kube-apiserver and
// kube-controller-manager, for tests. Package envtest builds it, caches it and runs it; each process is one subcommand.
//
// # The pipe
//
// A process reads its configuration, one JSON object, from standard input, and keeps reading: when its standard input
// ends, however its parent died, it stops. It writes one JSON object, a [Report], to standard output: where it
// listens and that it serves, or why it does not. Logs go to standard error. Nothing secret is in an argument, in the
// environment or, but for the key that signs service account tokens, in a file.
//
// # The module
//
// It is a module of its own because it needs the k8s.io modules of one Kubernetes release, whereas the library needs
// those of another. It is in no workspace: build it with GOWORK=off. Its go.mod has no replace lines, so that
//
//	go install github.com/setpoint-dev/setpoint/envtest/controlplane@latest
//
// works from anywhere. "go mod tidy" does need them, because k8s.io/kubernetes requires its own staging modules at
// v0.0.0, which do not exist. So change versions in go.mod and then, in this directory:
//
//	go run tidy.go
//
// which tidies with such replace lines and takes them out again.
package main
