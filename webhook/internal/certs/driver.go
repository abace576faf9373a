// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
)

// driver takes the steps that the rules decide. Only Run uses it.
type driver struct {
	certs   *Certs
	o       *Options
	rules   rules
	hook    *hook.Hook
	targets []Target
	secrets *client.Handle[*corev1.Secret]
	objects map[Kind]*client.Handle[*unstructured.Unstructured]
	report  *reporter
	wake    chan struct{} // has an element after a change

	memory  []authority       // the CAs that the Secret had or should have
	bundles []map[string]bool // of the last look
	secret  resets
	resets  map[Target]*resets

	signer  string    // the CA of the leaf in use
	renewAt time.Time // of the leaf in use
}

// reading is what one look read.
type reading struct {
	targets     []observed
	secret      *corev1.Secret // nil: it does not exist
	authorities []authority    // of the Secret
	foreign     bool           // it belongs to something else
	broken      bool           // some of it cannot be used
}

// step looks and takes the steps that are due. It returns when to look again.
func (d *driver) step(ctx context.Context) (next time.Time, err error) {
	limited, cancel := context.WithTimeout(ctx, d.limit())
	defer cancel()
	d.report.begin()
	if now := time.Now(); !now.Before(d.renewAt) { // slow requests must not delay it
		d.use(ctx, d.rules.decide(look{bundles: d.bundles, memory: d.memory}, now), now)
	}
	r, err := d.read(limited)
	now := time.Now()
	if err == nil {
		d.bundles = bundlesOf(r.targets)
		d.deleted(ctx, r)
		d.adopt(r, now)
	}
	p := d.rules.decide(look{bundles: d.bundles, secret: r.authorities, memory: d.memory}, now)
	d.memory = p.authorities
	wrong := d.use(ctx, p, now)
	next = earliest(now.Add(lookAgain), p.next, d.renewAt)
	if err == nil && !r.foreign {
		var again time.Time
		again, err = d.write(limited, r, p, now)
		if err == nil { // else Run retries later
			next = earliest(next, again)
		}
	}
	if err != nil && ctx.Err() == nil {
		d.report.problem(ctx, "request", nil, "", err.Error())
	}
	if ctx.Err() == nil {
		d.certs.found(append(append(wrong, d.missing(r, p)...), d.report.end(ctx)...))
	}
	return next, err
}

// limit returns the time for the requests of a look: until the leaf in use must be renewed.
func (d *driver) limit() time.Duration {
	if d.renewAt.IsZero() {
		return longestStep
	}
	return min(longestStep, max(time.Until(d.renewAt), time.Second))
}

func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// read reads the targets, then the Secret. So a Secret is at least as new as the bundles, and a
// bundle is never replaced by one from an older Secret.
func (d *driver) read(ctx context.Context) (reading, error) {
	var r reading
	for _, t := range d.targets {
		object, err := d.objects[t.Kind].GetLive(ctx, types.NamespacedName{Name: t.Name})
		if client.IgnoreNotFound(err) != nil {
			return r, fmt.Errorf("cannot read %s: %w", t, err)
		}
		if err != nil {
			object = nil
		}
		o := observe(t, object)
		if o.wrong != "" {
			d.report.problem(ctx, t.String(), d.eventObject(o), "BundleNotWritten", o.wrong)
		}
		r.targets = append(r.targets, o)
	}
	secret, err := d.secrets.GetLive(ctx, d.o.Secret)
	if client.IgnoreNotFound(err) != nil {
		return r, fmt.Errorf("cannot read the Secret %s: %w", d.o.Secret, err)
	}
	if err == nil {
		r.secret = secret
		d.parse(ctx, &r)
	}
	return r, nil
}

func (d *driver) parse(ctx context.Context, r *reading) {
	if why := foreign(r.secret); why != "" {
		r.foreign = true
		d.report.problem(ctx, "Secret", r.secret, "SecretNotOurs",
			fmt.Sprintf("the Secret %s belongs to something else: %s; delete it, or set another name", d.o.Secret, why))
		return
	}
	var err error
	if r.authorities, err = parse(r.secret.Data); err != nil {
		r.broken = true
		d.report.problem(ctx, "Secret", r.secret, "SecretBroken",
			fmt.Sprintf("the Secret %s has content that cannot be used, which is replaced: %s", d.o.Secret, oneLine(err)))
	}
	if n := len(r.authorities); n > 0 && time.Now().After(latest(r.authorities)) {
		d.report.problem(ctx, "Secret", r.secret, "SecretExpired",
			fmt.Sprintf("all CAs of the Secret %s have expired, the last at %s; they are replaced", d.o.Secret, latest(r.authorities).UTC().Format(time.RFC3339)))
	}
	if at := written(r.authorities, d.rules); at.After(time.Now().Add(d.o.Skew)) {
		d.report.problem(ctx, "clock", r.secret, "ClockSkew", fmt.Sprintf("the Secret %s has a time, %s, that is ahead of this replica's clock by more than Skew, %s; synchronize the clocks of the nodes",
			d.o.Secret, at.UTC().Format(time.RFC3339), d.o.Skew))
	}
}

func latest(all []authority) time.Time {
	var last time.Time
	for _, a := range all {
		if a.cert.NotAfter.After(last) {
			last = a.cert.NotAfter
		}
	}
	return last
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func bundlesOf(targets []observed) []map[string]bool {
	all := []map[string]bool{}
	for _, t := range targets {
		for _, b := range t.bundles {
			all = append(all, b.ids)
		}
	}
	return all
}

// deleted reports a Secret that existed before.
func (d *driver) deleted(ctx context.Context, r reading) {
	if r.secret == nil && len(d.memory) > 0 {
		gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.o.Secret.Namespace, Name: d.o.Secret.Name}}
		d.report.problem(ctx, "Secret", gone, "SecretDeleted", fmt.Sprintf("the Secret %s was deleted; it is written again from memory", d.o.Secret))
	}
}

// adopt remembers the CAs of the bundles if the Secret was lost, or loses what is written to it.
// Leaves of other replicas may be in use.
func (d *driver) adopt(r reading, now time.Time) {
	lost := len(r.authorities) == 0 && len(d.memory) == 0
	if r.foreign || !lost && !d.secret.pending {
		return
	}
	for _, t := range r.targets {
		for _, b := range t.bundles {
			for block, rest := pem.Decode(b.pem); block != nil; block, rest = pem.Decode(rest) {
				c, err := x509.ParseCertificate(block.Bytes)
				ours := err == nil && c.Subject.CommonName == authorityName(d.o) && checkAuthority(c) == nil
				if ours && now.Before(c.NotAfter) && find(d.memory, idOf(c.Raw)) < 0 {
					d.memory = append(d.memory, authority{id: idOf(c.Raw), cert: c})
				}
			}
		}
	}
}

// authorityName is the subject of our CAs. X.520 limits it.
func authorityName(o *Options) string {
	name := "setpoint webhook CA " + o.Secret.String()
	return name[:min(len(name), 64)]
}

// use signs a leaf if the signer or the time demands it. If that fails, the leaf in use stays.
func (d *driver) use(ctx context.Context, p plan, now time.Time) (wrong []string) {
	if p.signer < 0 {
		return []string{fmt.Sprintf("the Secret %s has no CA that can sign", d.o.Secret)}
	}
	ca := p.authorities[p.signer]
	if ca.id != d.signer || !now.Before(d.renewAt) {
		leaf, err := ca.sign(p.authorities, now, d.o)
		if err != nil {
			d.report.problem(ctx, "leaf", nil, "", fmt.Sprintf("cannot sign a certificate with the CA %s: %s", ca.id, oneLine(err)))
			return nil
		}
		d.observe(ca, leaf)
		d.certs.leaf.Store(leaf)
		d.signer, d.renewAt = ca.id, now.Add(leaf.Leaf.NotAfter.Sub(now)/2)
	}
	if !p.proven {
		wrong = append(wrong, fmt.Sprintf("the CA %s is new; API servers may not trust it yet, for %s after all bundles have it", ca.id, d.o.Propagation+d.o.Skew))
	}
	return wrong
}

func (d *driver) observe(ca authority, leaf *tls.Certificate) {
	if ca.id != d.signer {
		d.hook.Send(&hook.WebhookCertificate{CA: true, NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter})
	}
	d.hook.Send(&hook.WebhookCertificate{NotBefore: leaf.Leaf.NotBefore, NotAfter: leaf.Leaf.NotAfter})
}

func (d *driver) missing(r reading, p plan) (wrong []string) {
	if p.signer < 0 {
		return nil
	}
	for _, t := range r.targets {
		if !t.has(p.authorities[p.signer].id) {
			wrong = append(wrong, fmt.Sprintf("the caBundle of %s is not in place", t))
		}
	}
	return wrong
}

// write writes the Secret or, if it is right, the bundles. After a write it returns now, so that
// the next look reads it back. A write that lost against another client is not an error. While the
// Secret cannot be written, the bundles still get the CAs that they lack.
func (d *driver) write(ctx context.Context, r reading, p plan, now time.Time) (again time.Time, err error) {
	inPlace := !p.write && !r.broken && r.secret != nil
	d.secret.look(inPlace, p.authorities, r.has, now)
	switch due := d.secret.due(); {
	case inPlace:
	case now.Before(due):
		again = due
	default:
		if err = ignoreLost(d.writeSecret(ctx, r.secret, p, now)); err == nil {
			return now, nil
		}
	}
	wrong := []error{err}
	for _, t := range r.targets {
		resets := d.resets[t.Target]
		done := t.inPlace(p.authorities)
		resets.look(done, p.authorities, func(a authority) bool { return t.has(a.id) }, now)
		switch {
		case done, !inPlace && t.hasAll(p.authorities):
		case now.Before(resets.due()):
			again = earliest(again, resets.due())
		default:
			again = now
			wrong = append(wrong, d.writeBundles(ctx, t, p))
		}
	}
	return again, errors.Join(wrong...)
}

// has reports whether the Secret is not broken and still has what it had of a CA.
func (r reading) has(had authority) bool {
	i := find(r.authorities, had.id)
	return i >= 0 && !r.broken && (had.key == nil || r.authorities[i].key != nil) && (had.trusted.IsZero() || !r.authorities[i].trusted.IsZero())
}

// ignoreLost returns nil if another client was first.
func ignoreLost(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// writeSecret creates or updates the Secret, with a new CA if one is due.
func (d *driver) writeSecret(ctx context.Context, old *corev1.Secret, p plan, now time.Time) error {
	all := p.authorities
	if p.due {
		ca, err := newAuthority(authorityName(d.o), now, d.o)
		if err != nil {
			return fmt.Errorf("cannot make a CA: %w", err)
		}
		all = sorted(append(all[:len(all):len(all)], ca))
	}
	data, err := content(all)
	if err != nil {
		return fmt.Errorf("cannot write a key: %w", err)
	}
	if old == nil {
		_, err = d.secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.o.Secret.Namespace, Name: d.o.Secret.Name}, Type: corev1.SecretTypeOpaque, Data: data,
		}, client.FieldOwner(d.o.FieldOwner))
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot create the Secret %s; create its namespace: %w", d.o.Secret, noLost(err))
		}
	} else {
		changed := old.DeepCopy()
		changed.Data = data
		_, err = d.secrets.Update(ctx, changed, client.FieldOwner(d.o.FieldOwner))
	}
	if ignoreLost(err) != nil {
		return fmt.Errorf("cannot write the Secret %s: %w", d.o.Secret, err)
	}
	d.secret.wrote = true
	if err != nil {
		return err
	}
	d.memory = all // known even if another client removes it before the next look
	if p.due {
		logging.Of(ctx).Info("added a CA for webhooks", "secret", d.o.Secret.String(), "ca", all[len(all)-1].id, "until", all[len(all)-1].cert.NotAfter)
	}
	if old != nil && d.secret.count >= quickResets {
		d.rewritten(ctx, old)
	}
	return nil
}

// noLost hides the status of an error from ignoreLost.
func noLost(err error) error { return errors.New(err.Error()) }

func (d *driver) writeBundles(ctx context.Context, t observed, p plan) error {
	_, err := d.objects[t.Kind].Apply(ctx, client.UnstructuredConfiguration(t.configuration(p.authorities)), client.FieldOwner(d.o.FieldOwner))
	if ignoreLost(err) != nil {
		return fmt.Errorf("cannot write the caBundle of %s: %w", t, err)
	}
	resets := d.resets[t.Target]
	resets.wrote = true
	if err == nil && (resets.lost || resets.count >= quickResets) {
		d.restored(ctx, t, resets)
	}
	return nil
}

func (d *driver) eventObject(o observed) client.Object {
	if o.object == nil {
		return nil
	}
	return o.object
}
