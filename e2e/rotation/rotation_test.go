// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

// modeOf is an environment variable of a replica: short, ahead, long or shorter.
const modeOf = "ROTATION_TEST_CERTIFICATES"

var (
	rotations = flag.Int("rotations", 0, "the number of rotations by time; 0 skips the test")
	killEvery = flag.Int("kill-every", 0, "rotations between two kills; 0 for 50, or a third of -rotations if that is less")
	hard      = flag.Bool("hard", false, "kill replicas that serve requests")
)

func TestMain(m *testing.M) {
	if r, ok := FromEnvironment(); ok {
		if err := runReplica(r, os.Getenv(modeOf)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// certificates returns the options of a mode. A CA of the mode ahead seems to be 40 minutes old to
// the others. So it needs a successor at once in the mode shorter, but not in the mode long.
func certificates(mode string) webhook.CertificateOptions {
	switch mode {
	case "ahead":
		return webhook.CertificateOptions{CALifetime: 8 * time.Hour, Skew: 40 * time.Minute, Propagation: time.Second}
	case "long":
		return webhook.CertificateOptions{CALifetime: 8 * time.Hour, Skew: time.Second, Propagation: time.Second}
	case "shorter":
		return webhook.CertificateOptions{CALifetime: time.Hour, Skew: time.Second, Propagation: time.Second}
	}
	return Certificates()
}

// runReplica is a replica, until its standard input ends.
func runReplica(r Replica, mode string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return Setpoint(ctx, r, certificates(mode), os.Stdout)
}

// replicas returns a function that returns a replica of the present mode.
func replicas(mode *string) func() *exec.Cmd {
	var programs testkit.Replicas
	return func() *exec.Cmd {
		program, err := programs.Executable()
		cmd := exec.Command(program)
		cmd.Err = errors.Join(cmd.Err, err)
		cmd.Env = append(os.Environ(), modeOf+"="+*mode)
		return cmd
	}
}

// newCluster returns the options for a control plane of the test's own.
func newCluster(t *testing.T) Options {
	t.Helper()
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	namespace, err := cluster.Namespace(t.Context(), "rotation")
	testkit.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	testkit.NoError(t, cluster.WriteKubeconfig(kubeconfig))
	return Options{Kubeconfig: kubeconfig, Namespace: namespace, Contestant: "Setpoint", Replicas: 3, Rate: 20, Hard: *hard}
}

// TestA1_NoRequestFailsOnTheRealAPIServer is a rotation of three replicas that serve, next to up to
// 20 requests a second. It begins with a replica of a new version, whose CALifetime is shorter.
// Then one replica is killed. Lifetimes are hours, so nothing depends on the speed of the machine.
func TestA1_NoRequestFailsOnTheRealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // reports a replica that hangs
	defer cancel()
	o, mode := newCluster(t), "ahead"
	o.Command = replicas(&mode)
	r, err := open(ctx, o)
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, r.close(), nil)
	}()
	first, err := r.startReplica(ctx)
	testkit.NoError(t, err)
	old, err := first.uses(ctx, "")
	testkit.NoError(t, err)
	testkit.NoError(t, r.begin(ctx))
	mode = "long"
	for range o.Replicas {
		testkit.NoError(t, testkit.Err(r.startReplica(ctx)))
	}
	testkit.NoError(t, r.kill(ctx))
	mode = "shorter"
	result, err := r.measure(ctx, func(ctx context.Context) error { return r.rotateOnce(ctx, old) })
	testkit.Equal(t, err, nil)
	t.Logf("%d requests in %s", result.Requests, result.Took)
	report(t, result, 0)
}

// rotateOnce adds a replica, waits until all have replaced the CA old, and kills one.
func (r *race) rotateOnce(ctx context.Context, old string) error {
	if err := r.load.await(ctx, 5); err != nil {
		return err
	}
	if _, err := r.startReplica(ctx); err != nil {
		return err
	}
	for _, each := range r.processes {
		if _, err := each.uses(ctx, old); err != nil {
			return err
		}
	}
	if err := r.load.await(ctx, 10); err != nil {
		return err
	}
	if err := r.replace(ctx); err != nil {
		return err
	}
	return r.load.await(ctx, 10)
}

// report fails the test if a request had no success, and logs errors from a number on.
func report(t *testing.T, r Result, from int) {
	t.Helper()
	if r.Refused+r.Failed > 0 && !*hard {
		t.Errorf("%d requests were refused and %d failed; the first errors:", r.Refused, r.Failed)
	}
	for _, each := range r.Errors[min(from, len(r.Errors)):] {
		t.Log(each)
	}
}

// TestA1_NoRequestFailsInRotationsByTime has a CA lifetime of 8 seconds. See the package doc.
func TestA1_NoRequestFailsInRotationsByTime(t *testing.T) {
	if *rotations == 0 {
		t.Skip("it takes minutes of an idle machine, because its CAs live for seconds; set -rotations")
	}
	o, mode, logged := newCluster(t), "short", 0
	o.Command = replicas(&mode)
	o.Rotations = *rotations
	o.KillEvery = cmp.Or(*killEvery, max(min(50, *rotations/3), 1))
	o.Progress = func(r Result) {
		for ; logged < len(r.Errors); logged++ {
			t.Log(r.Errors[logged])
		}
		if r.Rotations%25 == 0 {
			t.Logf("%d rotations, %d kills, %d requests, %d refused, %d failed", r.Rotations, r.Kills, r.Requests, r.Refused, r.Failed)
		}
	}
	result, err := Run(t.Context(), o)
	testkit.Equal(t, err, nil)
	t.Logf("in %s:\n%s\n%s", result.Took, Table(result), ErrorTable(result))
	report(t, result, logged)
}
