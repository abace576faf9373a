// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/setpoint-dev/setpoint/e2e/rotation"
	"github.com/setpoint-dev/setpoint/envtest"
)

// rotations compares how webhook certificates rotate. The contestants run one after the other, each
// on a control plane of its own, under the same load.
//
//   - Setpoint: a manager with webhook.New. A CA lives 8 s and is replaced after 4 s.
//   - cert-controller, with controller-runtime's webhook server: options as in its README, with
//     CaCertDuration 30 s and LookaheadInterval 26 s, so that a CA is replaced after 4 s. In a
//     cluster the kubelet writes the Secret to the pod's files 30 s to 100 s later. Here each
//     replica writes them at once, from a watch, which favours cert-controller.
//   - knative: its certificate, validation and conversion reconcilers, with leader election. The
//     lifetime of a week is a constant. MakeSecret, an exported variable, makes certificates that
//     are due for rotation 4 s later, and the resync period is 1 s instead of 10 h. The Lease is
//     15 s instead of 60 s. The Go module proxy has no version after June 2023.
type rotations struct {
	number, killEvery int
	systems           string
	hard, verbose     bool
}

// rotationContestant in the environment makes this program a replica of a contestant.
const rotationContestant = "SETPOINT_BENCH_ROTATION"

func newRotations() *rotations {
	r := &rotations{}
	flag.IntVar(&r.number, "rotations", 50, "rotation: `number` of rotations of each contestant")
	flag.IntVar(&r.killEvery, "kill-every", 10, "rotation: `number` of rotations between two kills; 0 kills no replica")
	flag.StringVar(&r.systems, "certificates", "setpoint,cert-controller,knative", "rotation: the `contestants`, in their order")
	flag.BoolVar(&r.hard, "hard", false, "rotation: kill replicas that serve requests")
	flag.BoolVar(&r.verbose, "failures", false, "rotation: print the first 20 errors of each contestant")
	return r
}

// rotationReplica is a replica, until its standard input ends.
func rotationReplica(contestant string) error {
	r, ok := rotation.FromEnvironment()
	if !ok {
		return errors.New("this is no replica of package rotation: its environment is missing")
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if contestant == "cert-controller" {
		return certController(ctx, r)
	}
	return rotation.Setpoint(ctx, r, rotation.Certificates(), os.Stdout)
}

func (r *rotations) run(w *report, _ int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "bench")
	if err == nil {
		err = errors.Join(r.runIn(ctx, dir, w), os.RemoveAll(dir))
	}
	if err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runIn prints the table, also if a contestant ends early.
func (r *rotations) runIn(ctx context.Context, dir string, w *report) error {
	var results []rotation.Result
	var wrong error
	for _, system := range strings.Split(r.systems, ",") {
		result, err := r.measure(ctx, filepath.Join(dir, system), system)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", system, err))
		}
		results = append(results, result)
	}
	fmt.Fprintf(w, "%s\n%s", rotation.Table(results...), rotation.ErrorTable(results...))
	for _, result := range results {
		for _, text := range result.Errors {
			if r.verbose {
				fmt.Fprintf(w, "%s %s\n", result.Contestant, text)
			}
		}
	}
	return wrong
}

// measure starts a control plane and runs one contestant.
func (r *rotations) measure(ctx context.Context, dir, system string) (result rotation.Result, err error) {
	command, err := replicaOf(ctx, system, dir)
	if err != nil {
		return result, err
	}
	cluster, err := envtest.Start(ctx, envtest.Options{})
	if err != nil {
		return result, err
	}
	defer func() { //nolint:contextcheck // stop even if ctx is done
		err = errors.Join(err, cluster.Stop())
	}()
	namespace, err := cluster.Namespace(ctx, "rotation")
	if err != nil {
		return result, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig); err != nil {
		return result, err
	}
	return rotation.Run(ctx, rotation.Options{
		Kubeconfig: kubeconfig, Namespace: namespace, Contestant: system, Command: command, Replicas: 3, Rate: 20,
		Rotations: r.number, KillEvery: r.killEvery, Hard: r.hard,
		Progress: func(now rotation.Result) {
			if now.Rotations > 0 && now.Rotations%10 == 0 {
				fmt.Fprintf(os.Stderr, "%s: %d rotations, %d kills, %d requests, %d refused, %d failed\n",
					system, now.Rotations, now.Kills, now.Requests, now.Refused, now.Failed)
			}
		},
	})
}

// replicaOf returns a function that returns a replica of a contestant. dir is for its program.
func replicaOf(ctx context.Context, system, dir string) (func() *exec.Cmd, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	switch system {
	case "setpoint", "cert-controller":
		self, err := os.Executable()
		return func() *exec.Cmd {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), rotationContestant+"="+system, "TMPDIR="+dir)
			return cmd
		}, err
	case "knative":
		program := filepath.Join(dir, "knative")
		build := exec.CommandContext(ctx, "go", "build", "-C", "knative", "-o", program, ".")
		build.Env = append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot build the replica; run this program in the folder bench: %w\n%s", err, out)
		}
		return func() *exec.Cmd { return exec.Command(program) }, nil
	}
	return nil, fmt.Errorf("-certificates: %q is unknown; use setpoint, cert-controller or knative", system)
}
