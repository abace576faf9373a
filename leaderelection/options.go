// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures New. Only Lease is required in a pod; elsewhere also Namespace.
type Options struct {
	// Lease is the name of the Lease. It is created if it does not exist.
	Lease string
	// Namespace is where the Lease is. Default: the namespace of the pod that this runs in.
	Namespace string
	// Identity is how this process appears as holder. It must differ in each start of each process. Default: the host's
	// name and a random part.
	Identity string
	// LeaseDuration is how long a Lease that is not renewed stays its holder's: a crash costs that long, counted from the last
	// renewal. Also a Lease that says less is left alone for that long. Whole seconds. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is for how long the holder tries to renew before it gives the term up. It begins to try one RetryPeriod
	// after it last succeeded, so what is left of LeaseDuration after both is the time in which its work has to stop.
	// Default: two thirds of LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals, and between two tries to read the Lease where it cannot be watched: then, at
	// random, up to a fifth more. Default: a fifth of RenewDeadline.
	RetryPeriod time.Duration
	// Hooks observes the elector. Default: nobody does.
	Hooks *hook.LeaderElection
}

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	if o.Namespace == "" {
		if ns, err := os.ReadFile(namespaceFile); err == nil {
			o.Namespace = strings.TrimSpace(string(ns))
		}
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Identity = host + "_" + string(uuid.NewUUID())
	}
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 15 * time.Second
	}
	if o.RenewDeadline == 0 {
		o.RenewDeadline = o.LeaseDuration * 2 / 3
	}
	if o.RetryPeriod == 0 {
		o.RetryPeriod = o.RenewDeadline / 5
	}
	if o.Hooks == nil {
		o.Hooks = &hook.LeaderElection{}
	}
	return o
}

// lasts is for how long after a renewal was sent the term lasts, if no other succeeds.
func (o Options) lasts() time.Duration { return o.RetryPeriod + o.RenewDeadline }

// fence is for how long after a renewal was sent requests may be made: until half of the time is over that work has to stop.
// The other half is for what is on its way, and for clocks that do not run at the same rate.
func (o Options) fence() time.Duration {
	return o.LeaseDuration - (o.LeaseDuration-o.RenewDeadline-o.RetryPeriod)/2
}

// Validate names each field that is wrong, after defaults.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("leaderelection.Options."+format, args...))
	}
	if o.Lease == "" {
		wrong("Lease: name the Lease")
	}
	if o.Namespace == "" {
		wrong("Namespace: this is not a pod (no %s), so name the namespace of the Lease", namespaceFile)
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		wrong("LeaseDuration: %s, but a Lease counts whole seconds, at least one", o.LeaseDuration)
	}
	if o.RetryPeriod <= 0 || o.RetryPeriod*5/4 >= o.RenewDeadline {
		wrong("RetryPeriod: %s, must be positive and, with a quarter on top, shorter than RenewDeadline (%s)", o.RetryPeriod, o.RenewDeadline)
	}
	if o.RenewDeadline <= 0 || o.RenewDeadline+o.RetryPeriod >= o.LeaseDuration {
		wrong("RenewDeadline: %s, must be positive and, with RetryPeriod (%s) on top, shorter than LeaseDuration (%s)", o.RenewDeadline, o.RetryPeriod, o.LeaseDuration)
	}
	return errors.Join(errs...)
}
