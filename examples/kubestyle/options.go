// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/config"
	configoptions "k8s.io/component-base/config/options"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
)

// options are the flags, with the names of kube-controller-manager.
type options struct {
	kubeconfig  string
	address     string
	controllers []string
	workers     int
	grace       time.Duration
	leases      config.LeaderElectionConfiguration
	logs        *logsapi.LoggingConfiguration

	identity string // of this process, in the Lease
}

func newOptions() *options {
	o := &options{address: "127.0.0.1:10260", controllers: []string{"*"}, workers: 2, grace: 25 * time.Second, logs: logsapi.NewLoggingConfiguration()}
	o.leases = config.LeaderElectionConfiguration{
		LeaderElect: true, ResourceLock: "leases", ResourceNamespace: "kube-system", ResourceName: "kubestyle",
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	// A new identity for each start: this process does not own the Lease of its predecessor.
	o.identity = host + "_" + string(uuid.NewUUID())
	return o
}

// flags returns the flags in sections for --help.
func (o *options) flags(known []string) cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	f := sets.FlagSet("generic")
	f.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Path of the kubeconfig. If empty, the pod's service account is used.")
	f.StringVar(&o.address, "bind-address", o.address, "Address for /healthz and /metrics.")
	f.StringSliceVar(&o.controllers, "controllers", o.controllers, "Controllers to run: '*' enables all, 'foo' enables one, '-foo' disables one.\nControllers: "+strings.Join(known, ", "))
	f.IntVar(&o.workers, "concurrent-syncs", o.workers, "Number of objects that each controller works on concurrently.")
	f.DurationVar(&o.grace, "shutdown-grace-period", o.grace, "How long work may continue after SIGTERM.")
	configoptions.BindLeaderElectionFlags(&o.leases, sets.FlagSet("leader election"))
	logsapi.AddFlags(o.logs, sets.FlagSet("logs"))
	return sets
}

// validate returns an error for each invalid flag.
func (o *options) validate(known []string) error {
	var wrong []error
	for _, name := range o.controllers {
		if name != "*" && !slices.Contains(known, strings.TrimPrefix(name, "-")) {
			wrong = append(wrong, fmt.Errorf("--controllers: there is no controller %q; there are %s", strings.TrimPrefix(name, "-"), strings.Join(known, ", ")))
		}
	}
	if o.workers < 1 {
		wrong = append(wrong, fmt.Errorf("--concurrent-syncs: %d, must be at least 1", o.workers))
	}
	if o.grace < 0 {
		wrong = append(wrong, fmt.Errorf("--shutdown-grace-period: %s, must not be negative", o.grace))
	}
	if o.leases.ResourceLock != "leases" {
		wrong = append(wrong, fmt.Errorf("--leader-elect-resource-lock: %q, must be leases", o.leases.ResourceLock))
	}
	if o.leases.ResourceName == "" || o.leases.ResourceNamespace == "" {
		wrong = append(wrong, errors.New("--leader-elect-resource-name, --leader-elect-resource-namespace: name the Lease"))
	}
	if err := observeOptions(o.leases).Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period: %w", err))
	}
	return errors.Join(wrong...)
}

// enabled reports whether a controller runs. As in kube-controller-manager, the first flag that
// names it decides.
func (o *options) enabled(name string) bool {
	for _, c := range o.controllers {
		switch c {
		case name:
			return true
		case "-" + name:
			return false
		}
	}
	return slices.Contains(o.controllers, "*")
}

func (o *options) config() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return rest.AddUserAgent(cfg, "kubestyle"), nil
}
