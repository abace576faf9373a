// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures New. Only Lease is required in a pod; elsewhere also Namespace.
type Options struct {
	// Lease is the name of the Lease. It is created if it does not exist.
	Lease string
	// Namespace is where the Lease is. Default: the namespace of the pod.
	Namespace string
	// Identity is how this process appears as holder. It must differ in each start of each process.
	// Default: the host's name and a random part.
	Identity string
	// LeaseDuration is how long a Lease stays its holder's after the last renewal: a crash costs that
	// long. A Lease with a shorter duration is left alone for this long, too. Whole seconds. Default:
	// 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the holder tries to renew before it gives the term up. It begins one
	// RetryPeriod after the last success. What is left of LeaseDuration after both is the time in
	// which its work has to stop. Default: two thirds of LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals. A Lease that cannot be watched is read as often,
	// at random up to a fifth later. Default: a fifth of RenewDeadline.
	RetryPeriod time.Duration
	// Stay has Run wait, and not campaign, while the work of a lost term goes on too long. Check
	// reports that to a liveness probe. Default: Run returns an error, and the process should exit.
	Stay bool
	// Grace is how long the work of a lost term may go on before Check fails. Default: 20 s, as in
	// kube-controller-manager.
	Grace time.Duration
	// Hooks observes the elector. Default: none.
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
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 15*time.Second)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, o.LeaseDuration*2/3)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, o.RenewDeadline/5)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.Hooks = silent().With(o.Hooks)
	return o
}

// silent returns hooks that do nothing.
func silent() *hook.LeaderElection {
	lease, both := func(string) {}, func(string, error) {}
	return &hook.LeaderElection{
		Campaigning: lease, Acquired: lease, Lost: lease, Cold: lease, Released: both, Trouble: both,
		TookOver: func(hook.LeaseTakeover) {}, Renewed: func(hook.LeaseRenewal) {}, Leader: func(string, string) {},
	}
}

// lasts is how long the term lasts after the last renewal that succeeded was sent.
func (o Options) lasts() time.Duration { return o.RetryPeriod + o.RenewDeadline }

// fence is how long requests may be made after that: half of the time that work has to stop. The
// other half is for what is on its way, and for clocks that run at different rates.
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
	switch {
	case o.Lease == "":
		wrong("Lease: name the Lease")
	case len(validation.IsDNS1123Subdomain(o.Lease)) > 0:
		wrong("Lease: %q is no name of an object; use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most %d", o.Lease, validation.DNS1123SubdomainMaxLength)
	}
	switch {
	case o.Namespace == "":
		wrong("Namespace: this is not a pod (no %s), so name the namespace of the Lease", namespaceFile)
	case len(validation.IsDNS1123Label(o.Namespace)) > 0:
		wrong("Namespace: %q is no name of a namespace; use lower-case letters, digits and '-', beginning and ending with a letter or digit, at most %d", o.Namespace, validation.DNS1123LabelMaxLength)
	}
	switch {
	case len(o.Identity) > maxIdentity:
		wrong("Identity: %d bytes that begin with %q, use at most %d", len(o.Identity), o.Identity[:20], maxIdentity)
	case strings.TrimSpace(o.Identity) != o.Identity || !utf8.ValidString(o.Identity) || strings.ContainsFunc(o.Identity, unicode.IsControl):
		wrong("Identity: %q, use printable text that neither begins nor ends with a space, or leave it empty for one that is made up", o.Identity)
	}
	return errors.Join(append(errs, o.validateTimes())...)
}

// maxIdentity is longer than the longest host name with a UUID. It fits into annotations.
const maxIdentity = 512

// validateTimes returns what is wrong with the durations. The defaults of the later ones follow from
// the earlier ones, so only the first mistake counts.
func (o Options) validateTimes() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("leaderelection.Options."+format, args...))
	}
	switch {
	case o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0:
		wrong("LeaseDuration: %s, must be in whole seconds, at least one: so it is written into the Lease", o.LeaseDuration)
	case o.LeaseDuration > math.MaxInt32*time.Second:
		wrong("LeaseDuration: %s, must be at most %d s: so many fit into the Lease", o.LeaseDuration, math.MaxInt32)
	case o.RenewDeadline <= 0 || o.RenewDeadline >= o.LeaseDuration:
		wrong("RenewDeadline: %s, must be positive and shorter than LeaseDuration (%s)", o.RenewDeadline, o.LeaseDuration)
	case o.RetryPeriod <= 0 || o.RetryPeriod*5/4 >= o.RenewDeadline:
		wrong("RetryPeriod: %s, must be positive and, with a quarter on top, shorter than RenewDeadline (%s)", o.RetryPeriod, o.RenewDeadline)
	case o.RenewDeadline+o.RetryPeriod >= o.LeaseDuration:
		wrong("RenewDeadline: %s, must be, with RetryPeriod (%s) on top, shorter than LeaseDuration (%s)", o.RenewDeadline, o.RetryPeriod, o.LeaseDuration)
	}
	if o.Grace < 0 {
		wrong("Grace: %s, must not be negative", o.Grace)
	}
	return errors.Join(errs...)
}
