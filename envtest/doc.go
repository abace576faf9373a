// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package envtest starts a real Kubernetes control plane for tests: etcd, kube-apiserver and, if
// requested, kube-controller-manager. It needs only Go.
//
//	cluster, err := envtest.Start(ctx, envtest.Options{
//		CRDs:        []string{"config/crd"},
//		Controllers: true,
//	})
//	if err != nil { ... }
//	defer cluster.Stop()
//	mgr := manager.New(cluster.Config(), ...)
//
// Each Start creates its own [Cluster]. If several tests use one cluster, give each test its own
// [Cluster.Namespace]. There is no kubelet and no scheduler: pods stay Pending unless the test
// writes their status. Package envtest/fault is a proxy for tests that need delayed, refused or cut
// requests.
//
// [InstallWebhooks] installs webhook configurations that call the manager under test, on this API
// server or one of package envtest/sim. [ServingCertificate] makes the certificate for that.
//
// # Where the program comes from
//
// All three processes are one program, the module
// github.com/setpoint-dev/setpoint/envtest/controlplane. Start uses the first of these:
//
//   - the file that the environment variable SETPOINT_CONTROLPLANE names, for machines without
//     network
//   - the program in the user's cache directory
//   - a fresh build
//
// A build downloads Kubernetes' published modules through the Go module proxy. It runs once for
// each Kubernetes version, Go version and version of the module controlplane. In CI, make the build
// a separate step, which needs only Go:
//
//	go run github.com/setpoint-dev/setpoint/envtest/cluster fetch
//
// It prints the program's path. [Options.Version] chooses an older Kubernetes for one Start. The
// environment variable SETPOINT_KUBERNETES chooses it for a whole test suite, and for fetch:
//
//	SETPOINT_KUBERNETES=1.36 go test ./...
//
// The variable does not affect tests that use an existing cluster or prebuilt binaries. Together
// with SETPOINT_CONTROLPLANE it is an error.
//
// Without fetch, the command runs a control plane in the foreground and prints the path of a
// kubeconfig.
//
// # Guarantees
//
//   - E1: A test needs only Go. Other binaries or an existing cluster are used only on request.
//     Details: [Options.Kubeconfig] requests a cluster, and [Options.UseKubebuilderAssets]
//     prebuilt binaries.
//   - E2: Parallel tests share no state, unless they share a cluster on purpose. Details: this
//     holds in one process and in several.
//   - E3: With [Options.Controllers], namespaces are deleted and owned objects are collected
//     within seconds, by Kubernetes' own controllers. Details: this includes objects whose type
//     was installed after the start.
//   - E4: An error names the process, its last output and the remedy.
//   - E5: When the test binary ends for any reason, its processes stop and remove their data, at
//     the latest at the next start. Details: they see their pipe close. If they were killed too,
//     the next Start removes the data.
//   - E6: When [InstallWebhooks] returns, the next request uses the webhooks. When its remove
//     function returns, no request does.
//
// Every listener is on the loopback interface, on a port that the operating system chooses, or a
// socket in a directory of this user. Certificates are created in memory. etcd does not wait for
// the disk.
//
// Stability: stable.
package envtest
