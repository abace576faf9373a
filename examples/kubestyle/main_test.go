// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "KUBESTYLE_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestKubestyle runs the suite: the program as processes, against a real control plane.
func TestKubestyle(t *testing.T) {
	ginkgoWaitsForSignals := goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2")
	before := goleak.IgnoreCurrent()
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(30 * time.Second)
	RunSpecs(t, "Kubestyle")
	goleak.VerifyNone(t, before, ginkgoWaitsForSignals)
}

// parse parses flags like the program.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	o := newOptions()
	cmd := &cobra.Command{Use: "kubestyle", SilenceUsage: true, SilenceErrors: true, RunE: func(*cobra.Command, []string) error { return o.validate(known()) }}
	for _, set := range o.flags(known()).FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	cmd.SetArgs(args)
	return o, cmd.Execute()
}

// TestControllers: the rule is kube-controller-manager's.
func TestControllers(t *testing.T) {
	for flag, want := range map[string][]string{
		"*": known(), "*,-sweeper": {"robots", "teams", "expiry"}, "teams": {"teams"}, "-teams": nil, "teams,-teams": {"teams"},
		"-expiry,-robots,*": {"teams", "sweeper"},
	} {
		o, err := parse(t, "--controllers="+flag)
		if err != nil {
			t.Errorf("%s: %v", flag, err)
		}
		got := slices.DeleteFunc(known(), func(name string) bool { return !o.enabled(name) })
		if !slices.Equal(got, want) {
			t.Errorf("--controllers=%s runs %v, want %v", flag, got, want)
		}
	}
}

// TestBadFlags: the error names each invalid flag.
func TestBadFlags(t *testing.T) {
	for flag, words := range map[string]string{
		"--controllers=*,-nonsense":              "there is no controller \"nonsense\"; there are robots,",
		"--concurrent-syncs=0":                   "--concurrent-syncs: 0, must be at least 1",
		"--shutdown-grace-period=-1s":            "--shutdown-grace-period: -1s, must not be negative",
		"--leader-elect-resource-lock=endpoints": "--leader-elect-resource-lock: \"endpoints\", must be leases",
		"--leader-elect-lease-duration=5s":       "LeaseDuration",
		"--leader-elect-resource-name=":          "--leader-elect-resource-name",
	} {
		if _, err := parse(t, flag); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", flag, err, words)
		}
	}
}

// TestLeaderElectionFlags: client-go's elector and Setpoint's terms have the same times, from
// flags.
func TestLeaderElectionFlags(t *testing.T) {
	o, err := parse(t, "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s", "--leader-elect-retry-period=3s", "--leader-elect-resource-name=mine")
	if err != nil {
		t.Fatal(err)
	}
	host, terms := electorConfig(o.leases), observeOptions(o.leases)
	if host.LeaseDuration != 30*time.Second || host.RenewDeadline != 20*time.Second || host.RetryPeriod != 3*time.Second || host.Name != "mine" {
		t.Errorf("client-go has %+v", host)
	}
	if terms.LeaseDuration != host.LeaseDuration || terms.RenewDeadline != host.RenewDeadline || terms.RetryPeriod != host.RetryPeriod {
		t.Errorf("Setpoint has %+v", terms)
	}
}

// TestMainIsShort: embedding Setpoint takes little code.
func TestMainIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 120 {
		t.Errorf("main.go has %d lines, want fewer than 120", n)
	}
}
