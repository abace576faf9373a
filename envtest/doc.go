// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package envtest starts a real Kubernetes control plane for tests: etcd, kube-apiserver and, where asked for,
// kube-controller-manager. It needs only Go.
//
//	cluster, err := envtest.Start(ctx, envtest.Options{CRDs: []string{"config/crd"}, Controllers: true})
//	if err != nil { ... }
//	defer cluster.Stop()
//	mgr := manager.New(cluster.Config(), ...)
//
// A [Cluster] belongs to whoever started it: two Starts never share anything, in one process or in two. Tests that
// share one on purpose give each test its own [Cluster.Namespace]. There is no kubelet and no scheduler: pods stay
// Pending unless the test itself writes their status. Package envtest/fault stands between a client and the API server where
// a test needs requests that are late, refused or cut.
//
// # Where the program comes from
//
// All three processes are one program, the module github.com/setpoint-dev/setpoint/envtest/controlplane. Start takes,
// in this order: the file that the environment variable SETPOINT_CONTROLPLANE names (for machines without network);
// the program in the user's cache directory; a fresh build, which downloads Kubernetes' published modules through the
// Go module proxy, says beforehand what it will cost and reports its progress, once per Kubernetes version, Go version
// and version of that module. CI does this step on its own, with nothing but Go:
//
//	go run github.com/setpoint-dev/setpoint/envtest/cluster fetch
//
// which prints the program's path; without fetch the same command runs a control plane in the foreground and prints
// the path of a kubeconfig for it.
//
// # Guarantees
//
//   - E1: it needs only Go. An existing cluster ([Options.Kubeconfig]) or given binaries
//     ([Options.UseKubebuilderAssets]) are used when, and only when, they are asked for.
//   - E2: parallel tests never share state unless they ask to.
//   - E3: where asked for ([Options.Controllers]), namespaces die and owned objects are collected within seconds, by
//     Kubernetes' own controllers; also objects whose type was installed after the start.
//   - E4: a failure names the process, its last lines of output and what to do.
//   - E5: when the test binary ends, however it ends, its children see their pipe close, stop and remove their data;
//     if they were killed too, the next Start does.
//
// Every listener is on the loopback interface or a socket in a directory of this user; certificates are made in memory; the
// operating system chooses the ports; etcd does not wait for the disk.
package envtest
