// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

// These are environment variables of a replica.
const (
	kubeconfigOf = "SETPOINT_TEST_ROTATION_KUBECONFIG"
	namespaceOf  = "SETPOINT_TEST_ROTATION_NAMESPACE"
)

var (
	rotations = flag.Int("rotations", 0, "the number of rotations; 0 skips the test")
	killEvery = flag.Int("kill-every", 0, "rotations between two kills; 0 for 50, or a third of -rotations if that is less")
	hard      = flag.Bool("hard", false, "kill replicas that serve requests")
)

func TestMain(m *testing.M) {
	if path := os.Getenv(kubeconfigOf); path != "" {
		if err := runReplica(path, os.Getenv(namespaceOf)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runReplica is a replica, until its standard input ends.
func runReplica(kubeconfig, namespace string) error {
	cfg, err := client.LoadConfig(kubeconfig)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Strict: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return Setpoint(ctx, c, Certificates(namespace), os.Stdout)
}

// TestA1_NoRequestFailsOnTheRealAPIServer has 3 replicas and 20 requests a second. See the package
// doc for a run with 1,000 rotations.
func TestA1_NoRequestFailsOnTheRealAPIServer(t *testing.T) {
	if *rotations == 0 {
		t.Skip("it takes minutes of an idle machine, because its API server has a second to learn of a bundle; set -rotations")
	}
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	namespace, err := cluster.Namespace(t.Context(), "rotation")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if *killEvery == 0 {
		*killEvery = max(min(50, *rotations/3), 1)
	}
	logged := 0
	result, err := Run(t.Context(), Options{
		Config: cluster.Config(), Namespace: namespace, Contestant: "Setpoint", Replicas: 3, Rate: 20,
		Rotations: *rotations, KillEvery: *killEvery, Hard: *hard,
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), kubeconfigOf+"="+kubeconfig, namespaceOf+"="+namespace)
			return cmd
		},
		Progress: func(r Result) {
			for ; logged < len(r.Errors); logged++ {
				t.Log(r.Errors[logged])
			}
			if r.Rotations%25 == 0 {
				t.Logf("%d rotations, %d kills, %d requests, %d refused, %d failed", r.Rotations, r.Kills, r.Requests, r.Refused, r.Failed)
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("in %s:\n%s", result.Took, Table(result))
	if result.Refused+result.Failed > 0 && !*hard {
		t.Errorf("%d requests were refused and %d failed; the first errors:", result.Refused, result.Failed)
	}
	for _, each := range result.Errors[min(logged, len(result.Errors)):] {
		t.Log(each)
	}
}
