// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"slices"
	"time"
)

// rules are the times of Options.
type rules struct{ caLifetime, leafLifetime, skew, propagation time.Duration }

// look is what a replica has read, in this order: the bundles, then the Secret.
type look struct {
	bundles []map[string]bool // the ids of each bundle that API servers use
	secret  []authority       // oldest first
	memory  []authority       // what the replica knew before
}

// plan is what a replica does after a look.
type plan struct {
	authorities []authority // of the Secret, and therefore of each bundle
	due         bool        // a new CA must be added to them
	write       bool        // the Secret must be written before any bundle
	signer      int         // the CA that signs leaves, or -1
	proven      bool        // API servers have had the signer long enough
	next        time.Time   // when the plan changes by itself
}

// decide is the rule of rotation. It has no state and no clock.
func (r rules) decide(l look, now time.Time) plan {
	all := known(l)
	r.stamp(all, l.bundles, now)
	p := plan{due: r.due(all, now), next: now.Add(r.caLifetime)}
	p.authorities = r.kept(all, l.secret, p.due, now)
	p.write = p.due || !slices.EqualFunc(p.authorities, l.secret, same)
	p.signer, p.proven = r.signer(p.authorities, l.bundles, now)
	for _, a := range p.authorities {
		for _, t := range []time.Time{r.provenAt(a), r.rotateAt(a), a.cert.NotBefore, a.cert.NotAfter.Add(-2 * r.skew), a.cert.NotAfter, r.retiredAt(a, all).Add(r.skew)} {
			if t.After(now) && t.Before(p.next) {
				p.next = t
			}
		}
	}
	return p
}

// known joins the CAs of the Secret and of the memory.
func known(l look) []authority {
	var all []authority
	for _, a := range l.secret {
		if i := find(l.memory, a.id); i >= 0 && a.key == nil {
			a.key = l.memory[i].key
		}
		all = append(all, a)
	}
	for _, a := range l.memory {
		if find(l.secret, a.id) < 0 {
			all = append(all, a)
		}
	}
	return sorted(all)
}

// kept returns the CAs that a leaf in use may need. What the Secret has stays Skew longer. So a CA
// leaves only when it has retired on every clock, and then no memory brings it back.
func (r rules) kept(all, secret []authority, due bool, now time.Time) []authority {
	var kept []authority
	for _, a := range all {
		until := r.retiredAt(a, all)
		if find(secret, a.id) >= 0 {
			until = until.Add(r.skew)
		}
		if now.Before(until) {
			kept = append(kept, a)
		}
	}
	limit := maxAuthorities
	if due {
		limit--
	}
	if len(kept) <= limit {
		return kept
	}
	slices.Reverse(kept) // newest first
	slices.SortStableFunc(kept, func(a, b authority) int { return weight(b, now) - weight(a, now) })
	return sorted(kept[:limit])
}

// weight is greater for CAs whose leaves are more likely to be in use.
func weight(a authority, now time.Time) (w int) {
	if a.key != nil && !now.Before(a.cert.NotBefore) {
		w += 2
	}
	if !a.trusted.IsZero() {
		w++
	}
	return w
}

// stamp records which CAs all bundles have, and forgets it of CAs that a bundle lacks. A time that
// no clock can have written counts as now.
func (r rules) stamp(all []authority, bundles []map[string]bool, now time.Time) {
	for i, a := range all {
		switch in := inAll(bundles, a.id); {
		case !in:
			all[i].trusted = time.Time{}
		case a.trusted.IsZero(), a.trusted.After(now.Add(r.skew)):
			all[i].trusted = now
		}
	}
}

func inAll(bundles []map[string]bool, id string) bool {
	return !slices.ContainsFunc(bundles, func(b map[string]bool) bool { return !b[id] })
}

// due reports whether there is no CA that can sign now and needs no successor yet.
func (r rules) due(all []authority, now time.Time) bool {
	return !slices.ContainsFunc(all, func(a authority) bool {
		return a.key != nil && !now.Before(a.cert.NotBefore) && now.Before(r.rotateAt(a))
	})
}

// signer returns the newest CA that API servers trust for certain. Without one, it returns the CA
// that they probably trust: a bundle has it, or it is the oldest.
func (r rules) signer(all []authority, bundles []map[string]bool, now time.Time) (signer int, proven bool) {
	best, rank := -1, 0
	for i, a := range all {
		if a.key == nil || now.Before(a.cert.NotBefore) || !now.Before(a.cert.NotAfter) {
			continue
		}
		score := 1
		switch fresh, trusted := now.Before(a.cert.NotAfter.Add(-2*r.skew)), inAll(bundles, a.id); {
		case trusted && fresh && !now.Before(r.provenAt(a)) && !a.trusted.IsZero():
			score = 4
		case trusted && fresh:
			score = 3
		case trusted:
			score = 2
		}
		if score > rank || score == 4 { // of two that are proven, the newer one
			best, rank = i, score
		}
	}
	return best, rank == 4 || best >= 0 && len(all) == 1
}

// provenAt is when API servers are certain to have the CA.
func (r rules) provenAt(a authority) time.Time { return a.trusted.Add(r.propagation + r.skew) }

// rotateAt is when the CA needs a successor. A shorter lifetime in the options applies at once.
func (r rules) rotateAt(a authority) time.Time {
	created := a.cert.NotBefore.Add(r.skew)
	return created.Add(min(r.caLifetime, a.cert.NotAfter.Sub(created)) / 2)
}

// retiredAt is when the last leaf of a CA has expired. Replicas sign with a newer CA as soon as it
// is proven, and any of them that has the key of the old one puts it back into the Secret.
func (r rules) retiredAt(a authority, all []authority) time.Time {
	at := a.cert.NotAfter
	for _, newer := range all {
		if a.key == nil && newer.key != nil && !newer.trusted.IsZero() && newer.cert.NotBefore.After(a.cert.NotBefore) {
			at = earliest(at, r.provenAt(newer).Add(r.leafLifetime))
		}
	}
	return at
}

// written returns the latest time that a replica wrote to the Secret, by its clock.
func written(all []authority, r rules) time.Time {
	var last time.Time
	for _, a := range all {
		for _, t := range []time.Time{a.trusted, a.cert.NotBefore.Add(r.skew)} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// same reports whether the Secret has the same about a CA.
func same(a, b authority) bool {
	return a.id == b.id && (a.key == nil) == (b.key == nil) && a.trusted.Equal(b.trusted)
}
