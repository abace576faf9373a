// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

// Options configures New. Lease is required, outside a pod also Namespace.
type Options struct {
	// Config is the configuration for requests for the Lease, if the Lease is in another cluster or
	// needs other credentials. All replicas must use the same Lease in the same cluster. The fence
	// checks the writes to every cluster. Errors about the Lease name its cluster. Default: the
	// configuration that New gets, or the manager's.
	Config *rest.Config
	// Lease is the name of the Lease, which the elector creates if it does not exist.
	// Required.
	Lease string
	// Namespace contains the Lease. Default: the namespace of the pod.
	Namespace string
	// Identity is the holderIdentity of this process, at most 512 bytes. It must be unique: do not
	// reuse it in another process or after a restart. Default: the host name and a UUID.
	Identity string
	// LeaseDuration is how long a Lease is held after its last renewal. After a crash, there is no
	// leader for this time. A rival's Lease with a shorter duration is respected for this long,
	// too. It must be in whole seconds. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the holder tries to renew before the term is lost, from one
	// RetryPeriod after the last successful renewal. RetryPeriod and RenewDeadline together must be
	// shorter than LeaseDuration, because the work must stop in the remaining time. Default: two
	// thirds of LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals, and between two reads of a Lease that cannot
	// be watched. It must be shorter than four fifths of RenewDeadline. Default: a fifth of
	// RenewDeadline.
	RetryPeriod time.Duration
	// Stay makes Run wait, without a campaign, if the work of a lost term still runs when the Lease
	// expires. Check then fails a liveness probe after StuckAfter. Default: Run returns an error,
	// and the process should exit.
	Stay bool
	// StuckAfter is how long the work of a lost term may go on before Check fails. Default: 20 s,
	// as in kube-controller-manager.
	StuckAfter time.Duration
	// Labels are set on the Lease when the elector acquires or renews it. Other labels stay.
	// Default: none.
	Labels map[string]string
	// Annotator sets annotations of the Lease. Other ones stay, and a release changes none. The
	// first renewal is sent right after the acquisition. Default: none.
	Annotator Annotator
	// Hook gets the elector's events. Default: none.
	Hook *hook.Hook
}

// Annotator returns annotations for a Lease.
type Annotator interface {
	// Annotations is called before each write that acquires or renews the Lease. It gets the token
	// of the term, or the zero Token before an acquisition, whose version is not known yet. It must
	// not block. If the API server refuses the result, the Lease is not renewed.
	Annotations(of term.Token) map[string]string
}

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

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
	o.StuckAfter = cmp.Or(o.StuckAfter, 20*time.Second)
	o.Labels = maps.Clone(o.Labels)
	return o
}

// described sets the labels and annotations.
func (o Options) described(l *coordinationv1.Lease, token term.Token) *coordinationv1.Lease {
	for key, value := range o.Labels {
		metav1.SetMetaDataLabel(&l.ObjectMeta, key, value)
	}
	if o.Annotator != nil {
		for key, value := range o.Annotator.Annotations(token) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, value)
		}
	}
	return l
}

func (o Options) lasts() time.Duration { return o.RetryPeriod + o.RenewDeadline }

// fence is how long the term is trusted after the last renewal was sent. Half of the time for the
// work to stop remains, for requests on the wire and for clocks with different rates.
func (o Options) fence() time.Duration {
	return o.LeaseDuration - (o.LeaseDuration-o.RenewDeadline-o.RetryPeriod)/2
}

// Validate applies the defaults and returns an error that names each wrong field.
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
		wrong("Lease: %q is not a valid name; use at most %d lower-case letters, digits, '-' and '.', with a letter or digit at both ends", o.Lease, validation.DNS1123SubdomainMaxLength)
	}
	switch {
	case o.Namespace == "":
		wrong("Namespace: this is not a pod (no %s), so name the namespace of the Lease", namespaceFile)
	case len(validation.IsDNS1123Label(o.Namespace)) > 0:
		wrong("Namespace: %q is not a valid name; use at most %d lower-case letters, digits and '-', with a letter or digit at both ends", o.Namespace, validation.DNS1123LabelMaxLength)
	}
	switch {
	case len(o.Identity) > maxIdentity:
		wrong("Identity: %d bytes that begin with %q; use at most %d", len(o.Identity), o.Identity[:20], maxIdentity)
	case strings.TrimSpace(o.Identity) != o.Identity || !utf8.ValidString(o.Identity) || strings.ContainsFunc(o.Identity, unicode.IsControl):
		wrong("Identity: %q; use printable text that does not begin or end with a space, or leave it empty for a generated one", o.Identity)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		if invalid := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(o.Labels[key])...); len(invalid) > 0 {
			wrong("Labels: %s=%s: %s", key, o.Labels[key], strings.Join(invalid, "; "))
		}
	}
	return errors.Join(append(errs, o.validateTimes())...)
}

// maxIdentity is longer than the longest host name with a UUID, and fits into annotations.
const maxIdentity = 512

// validateTimes reports only the first wrong duration: the defaults of the others depend on it.
func (o Options) validateTimes() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("leaderelection.Options."+format, args...))
	}
	switch {
	case o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0:
		wrong("LeaseDuration: %s, must be whole seconds, at least 1 s, as in the Lease", o.LeaseDuration)
	case o.LeaseDuration > math.MaxInt32*time.Second:
		wrong("LeaseDuration: %s, must be at most %d s, as in the Lease", o.LeaseDuration, math.MaxInt32)
	case o.RenewDeadline <= 0 || o.RenewDeadline >= o.LeaseDuration:
		wrong("RenewDeadline: %s, must be positive and shorter than LeaseDuration (%s)", o.RenewDeadline, o.LeaseDuration)
	case o.RetryPeriod <= 0 || o.RetryPeriod*5/4 >= o.RenewDeadline:
		wrong("RetryPeriod: %s, must be positive and, with a quarter on top, shorter than RenewDeadline (%s)", o.RetryPeriod, o.RenewDeadline)
	case o.RenewDeadline+o.RetryPeriod >= o.LeaseDuration:
		wrong("RenewDeadline: %s, must be, with RetryPeriod (%s) on top, shorter than LeaseDuration (%s)", o.RenewDeadline, o.RetryPeriod, o.LeaseDuration)
	}
	if o.StuckAfter < 0 {
		wrong("StuckAfter: %s, must not be negative", o.StuckAfter)
	}
	return errors.Join(errs...)
}

// Elector implements manager.Coordinator: one replica at a time leads.
func (o Options) Elector(h term.Host) (term.Elector, error) {
	cfg, err := h.Config(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the Lease %q: leaderelection.Options.Config: %w", o.Lease, err)
	}
	if o.Config != nil {
		o.Config = cfg // errors name its API server
	}
	o.Identity = cmp.Or(o.Identity, h.Identity())
	o.Hook = h.Hook(o.Hook)
	e, err := New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("the Lease %q: %w", o.Lease, err)
	}
	return e, nil
}
