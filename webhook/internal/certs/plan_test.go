// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a world of replicas without I/O: the Secret, two bundles, and API servers that may use
// each bundle for Propagation after it was replaced. Each replica has its own clock.
type model struct {
	rules

	random *rand.Rand
	now    time.Time
	made   int

	secret        []authority
	secretVersion int
	bundles       [2]modelBundle
	replicas      []*modelReplica
	rotations     int
	failure       string
}

type modelBundle struct {
	ids     map[string]bool
	version int
	old     []pastBundle
}

type pastBundle struct {
	ids   map[string]bool
	until time.Time
}

// modelReplica does one thing at a time: it reads each bundle, reads the Secret, and writes.
type modelReplica struct {
	clock  time.Duration
	memory []authority
	leaf   modelLeaf

	at       int // the next of its actions
	look     look
	versions [3]int
	plan     plan
	failed   bool // the write of the Secret
}

type modelLeaf struct {
	ca                  string
	notBefore, notAfter time.Time
	renewAt             time.Time
}

func newModel(seed uint64) *model {
	m := &model{
		rules:  rules{caLifetime: 30 * time.Minute, leafLifetime: 10 * time.Minute, skew: 20 * time.Second, propagation: time.Minute},
		random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_900_000_000, 0),
	}
	for i := range m.bundles {
		m.bundles[i].ids = map[string]bool{}
	}
	for range 3 {
		m.replicas = append(m.replicas, m.newReplica())
	}
	return m
}

func (m *model) newReplica() *modelReplica {
	return &modelReplica{clock: time.Duration(m.random.Int64N(int64(m.skew))) - m.skew/2}
}

func (m *model) newAuthority(now time.Time) authority {
	m.made++
	cert := &x509.Certificate{NotBefore: now.Add(-m.skew).Truncate(time.Second), NotAfter: now.Add(m.caLifetime).Truncate(time.Second)}
	return authority{id: fmt.Sprint("ca", m.made), cert: cert, key: &ecdsa.PrivateKey{}}
}

// act takes the replica's next action.
func (m *model) act(r *modelReplica) {
	now := m.now.Add(r.clock)
	switch r.at++; r.at {
	case 1, 2:
		b := &m.bundles[r.at-1]
		if r.at == 1 {
			r.look = look{}
		}
		r.look.bundles, r.versions[r.at-1] = append(r.look.bundles, maps.Clone(b.ids)), b.version
	case 3:
		r.look.secret, r.look.memory, r.versions[2] = slices.Clone(m.secret), r.memory, m.secretVersion
		r.plan = m.decide(r.look, now)
		r.memory = r.plan.authorities
		m.use(r, now)
	case 4:
		r.failed = r.plan.write && m.random.IntN(10) == 0
		if r.plan.write && !r.failed && r.versions[2] == m.secretVersion {
			m.secret = slices.Clone(r.plan.authorities)
			if r.plan.due {
				m.secret = sorted(append(m.secret, m.newAuthority(now)))
				m.rotations++
			}
			m.secretVersion++
		}
	case 5, 6:
		m.writeBundle(r, r.at-5)
	}
	if r.at == 6 {
		r.at = 0
	}
}

func (m *model) use(r *modelReplica, now time.Time) {
	if r.plan.signer < 0 {
		return
	}
	ca := r.plan.authorities[r.plan.signer]
	if ca.id == r.leaf.ca && now.Before(r.leaf.renewAt) {
		return
	}
	until := now.Add(m.leafLifetime).Truncate(time.Second)
	if until.After(ca.cert.NotAfter) {
		until = ca.cert.NotAfter
	}
	r.leaf = modelLeaf{ca.id, now.Add(-m.skew), until, now.Add(until.Sub(now) / 2)}
}

func (m *model) writeBundle(r *modelReplica, i int) {
	b, want := &m.bundles[i], map[string]bool{}
	for _, a := range r.plan.authorities {
		want[a.id] = true
	}
	if r.plan.write && !r.failed || r.versions[i] != b.version || maps.Equal(want, b.ids) {
		return
	}
	if r.failed && !slices.ContainsFunc(r.plan.authorities, func(a authority) bool { return !b.ids[a.id] }) {
		return
	}
	b.old = slices.DeleteFunc(append(b.old, pastBundle{b.ids, m.now}), func(p pastBundle) bool { return m.now.Sub(p.until) > m.propagation })
	b.ids = want
	b.version++
}

// judge asks every API server to trust every replica.
func (m *model) judge() {
	for _, r := range m.replicas {
		if r.leaf.ca == "" || m.rotations < 2 {
			continue // before the first rotation, the webhooks are not installed yet
		}
		if ends := m.now.Add(m.skew / 2); !ends.Before(r.leaf.notAfter) || m.now.Add(-m.skew/2).Before(r.leaf.notBefore) {
			m.failure = fmt.Sprintf("a leaf of %s is served at %s, but is valid from %s to %s", r.leaf.ca, m.now, r.leaf.notBefore, r.leaf.notAfter)
		}
		for i, b := range m.bundles {
			if !b.ids[r.leaf.ca] {
				m.failure = fmt.Sprintf("at %s bundle %d does not have %s, which signs a leaf", m.now, i, r.leaf.ca)
			}
			for _, old := range b.old {
				if m.now.Sub(old.until) < m.propagation && !old.ids[r.leaf.ca] {
					m.failure = fmt.Sprintf("at %s an API server with bundle %d of %s ago does not have %s, which signs a leaf", m.now, i, m.now.Sub(old.until), r.leaf.ca)
				}
			}
		}
	}
}

// run goes on until that many rotations have begun, or a replica would be refused.
func (m *model) run(rotations int) string {
	for end := m.now.Add(time.Duration(rotations) * m.caLifetime); m.rotations < rotations && m.failure == ""; {
		if m.now.After(end) {
			return fmt.Sprintf("only %d rotations in %d CA lifetimes", m.rotations, rotations)
		}
		m.now = m.now.Add(time.Duration(m.random.Int64N(int64(2 * time.Second))))
		m.act(m.replicas[m.random.IntN(len(m.replicas))])
		if m.random.IntN(500) == 0 { // a kill
			m.replicas[m.random.IntN(len(m.replicas))] = m.newReplica()
		}
		m.judge()
	}
	return m.failure
}

// TestA1_NoReplicaIsRefusedInAnyInterleaving runs replicas whose actions interleave at random, with
// different clocks, kills, and API servers that lag.
func TestA1_NoReplicaIsRefusedInAnyInterleaving(t *testing.T) {
	for seed := range uint64(10) {
		if failure := newModel(seed).run(100); failure != "" {
			t.Fatalf("seed %d: %s", seed, failure)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		if failure := newModel(seed).run(20); failure != "" {
			t.Fatal(failure)
		}
	})
}
