// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Program controlplane is a Kubernetes control plane in one file for tests: etcd's embedded server,
// kube-apiserver and kube-controller-manager, each a subcommand. Package envtest builds, caches and
// runs it.
//
// # The pipe
//
// A process reads its configuration, one JSON object, from standard input and keeps reading. It
// stops when standard input ends, however its parent dies. It writes one JSON object, a [Report],
// to standard output. Logs go to standard error. Secrets are not in arguments or the environment,
// and the only secret in a file is the key that signs service account tokens.
//
// # The module
//
// It is a separate module: it needs the k8s.io modules of one Kubernetes release, and the library
// needs another version. Build it with GOWORK=off. Its go.mod has no replace lines, so this works
// from anywhere:
//
//	go install github.com/setpoint-dev/setpoint/envtest/controlplane@latest
//
// Older releases have their own requirements beside go.mod, in kubernetes-1.36.mod for instance. A
// file that only one release compiles has the build constraint kubernetes1.36. By hand, a build is:
//
//	go build -modfile=kubernetes-1.36.mod -tags=kubernetes1.36 .
//
// "go mod tidy" needs replace lines, because k8s.io/kubernetes requires its staging modules at
// v0.0.0, which do not exist. To upgrade, change the version of k8s.io/kubernetes in a module file
// and in envtest/release.go, and run in this directory:
//
//	go run tidy.go
//
// It sets the versions of the staging modules, and tidies each module file with replace lines that
// it then removes.
package main
