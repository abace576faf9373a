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
	// LeaseDuration is how long a Lease that is not renewed stays its holder's: a crash costs that long. Whole seconds.
	// Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is for how long the holder tries to renew before it gives the term up. Default: two thirds of
	// LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two tries to acquire or renew. Default: RenewDeadline / 5.
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
	return o
}

// Validate names the field that is wrong, after defaults.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Lease == "":
		return errors.New("leaderelection.Options.Lease: name the Lease")
	case o.Namespace == "":
		return fmt.Errorf("leaderelection.Options.Namespace: this is not a pod (no %s), so name the namespace of the Lease", namespaceFile)
	case o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0:
		return fmt.Errorf("leaderelection.Options.LeaseDuration: %s, but a Lease counts whole seconds, at least one", o.LeaseDuration)
	case o.RenewDeadline <= 0 || o.RenewDeadline >= o.LeaseDuration:
		return fmt.Errorf("leaderelection.Options.RenewDeadline: %s, must be positive and shorter than LeaseDuration (%s)", o.RenewDeadline, o.LeaseDuration)
	case o.RetryPeriod <= 0 || o.RetryPeriod*5/4 >= o.RenewDeadline:
		return fmt.Errorf("leaderelection.Options.RetryPeriod: %s, must be positive and, with a quarter of jitter, shorter than RenewDeadline (%s)", o.RetryPeriod, o.RenewDeadline)
	}
	return nil
}
