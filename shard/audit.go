// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/slots"
)

const (
	auditEvery   = time.Second
	auditAfter   = 10 * time.Second // that a doubt lasts before it is a finding
	absentAfter  = 30 * time.Second // the same for a controller without workers
	auditCounts  = 2                // censuses of both members in this time
	auditRotates = 10               // censuses, then other keys are sampled
)

// kind is a kind of doubts.
type kind int

const (
	absent      kind = iota // the member owns slots, and the controller has no workers there
	disagree                // the member computes other slots than this one
	unknown                 // the member owns the key, and does not know it
	unknownHere             // this member owns the key, and does not know it, but the member does
	nobody                  // the member owns the key, and does not reconcile it; nor do others
	several                 // the member and another one reconcile the key
)

// topic is what a finding is about.
type topic struct {
	kind       kind
	controller string
	member     slots.ID
}

// doubt identifies a difference. Doubts about another adoption of the slot are other ones.
type doubt struct {
	topic

	hash  uint64
	epoch uint64 // of the slot
}

// evidence is what makes a doubt a finding: time, and further censuses of both members.
type evidence struct {
	at          time.Time
	here, there uint64 // the numbers of their censuses
	example     string
	current     bool // it was seen in the newest comparison
	found       bool
}

// auditor compares the samples of the members. Only the life's goroutine uses it.
type auditor struct {
	*member
	audits
}

// audits is the state of an auditor, which starts over when the member is in no group.
type audits struct {
	at     time.Time
	result Audit
	doubts map[doubt]*evidence
	began  map[string]uint64 // the numbers of censuses when the sampled keys changed
	logged map[topic]bool
}

// party is a member that takes part in the audit.
type party struct {
	slots.ID
	*notice

	here  bool
	slots int // that it owns
}

// audit compares the samples of all members, at most once a second. The members are in the
// newest assignment.
func (u *auditor) audit(members []MemberStatus) Audit {
	a := u.assignment()
	switch {
	case a == nil || !a.Joined(u.id):
		u.audits = audits{}
	case time.Since(u.at) >= auditEvery:
		u.at = time.Now()
		c := &comparison{audits: &u.audits, assignment: a, all: u.parties(a, members)}
		c.compare()
		u.rotate(c.all)
		u.logFindings()
	}
	return u.result
}

// parties returns the members that show an audit and renew their Leases, by name.
func (u *auditor) parties(a *slots.Assignment, members []MemberStatus) (all []party) {
	for i, m := range a.Members() {
		p := party{ID: m.ID, here: m.ID == u.id, slots: members[i].Slots}
		switch {
		case p.here:
			p.notice = u.notice()
		case members[i].Silent.IsZero():
			p.notice = noticeOf(u.seen.look(m.Name).lease)
		}
		if p.notice != nil {
			all = append(all, p)
		}
	}
	return all
}

// rotate lets the first member choose which keys are sampled, and the others follow. The keys stay
// while a member has findings.
func (u *auditor) rotate(all []party) {
	if !all[0].here {
		u.owned.SampleFrom(all[0].From)
		return
	}
	for _, p := range all {
		if p.Found || p.here && len(u.result.Findings) > 0 {
			return
		}
	}
	now := map[string]uint64{}
	if len(all[0].Of) == 0 {
		return
	}
	for name, s := range all[0].Of {
		if now[name] = s.N; u.began != nil && s.N < u.began[name]+auditRotates {
			return
		}
	}
	if u.began != nil {
		u.owned.SampleFrom(rand.Uint64())
	}
	u.began = now
}

// logFindings warns once for each change of what the findings are about.
func (u *auditor) logFindings() {
	now := map[topic]bool{}
	for d, p := range u.doubts {
		if p.found {
			now[d.topic] = true
		}
	}
	was := u.logged
	if u.logged = now; maps.Equal(now, was) {
		return
	}
	if len(now) == 0 {
		u.log.Info("the audit finds no faults any more")
		return
	}
	u.log.Warn("the audit found keys that are not reconciled by exactly one member", "findings", strings.Join(u.result.Findings, "; "))
}

// comparison is one comparison of all samples.
type comparison struct {
	*audits

	assignment *slots.Assignment
	all        []party
}

func (c *comparison) compare() {
	if c.doubts == nil {
		c.doubts = map[doubt]*evidence{}
	}
	for _, p := range c.doubts {
		p.current = false
	}
	here := c.all[slices.IndexFunc(c.all, func(p party) bool { return p.here })]
	c.result = Audit{Members: len(c.all) - 1}
	for name, s := range here.Of {
		if s.N > 0 {
			c.result.Keys += len(s.Census.Keys)
			c.owners(name, here, s)
		}
	}
	for _, p := range c.all {
		if !p.here {
			c.pair(here, p)
		}
	}
	maps.DeleteFunc(c.doubts, func(_ doubt, p *evidence) bool { return !p.current })
	c.conclude()
}

// pair compares this member with another one.
func (c *comparison) pair(here, there party) {
	for name, mine := range here.Of {
		theirs := there.Of[name]
		switch {
		case theirs == nil && there.slots > 0:
			c.doubt(doubt{topic: topic{absent, name, there.ID}}, 0, 0, "")
		case theirs != nil && mine.N > 0 && theirs.N > 0:
			c.samples(name, mine, theirs, here, there)
		}
	}
	for name := range there.Of {
		if here.Of[name] == nil && here.slots > 0 {
			c.doubt(doubt{topic: topic{absent, name, here.ID}}, 0, 0, "")
		}
	}
}

func (c *comparison) samples(name string, mine, theirs *sample, here, there party) {
	note := func(k kind, hash uint64, s slots.Slot, example string) {
		c.doubt(doubt{topic{k, name, there.ID}, hash, c.assignment.Slot(s).Epoch}, mine.N, theirs.N, example)
	}
	for _, k := range mine.Census.Keys {
		i, known := theirs.Find(k.Hash)
		switch {
		case known && theirs.Census.Keys[i].Slot != k.Slot:
			note(disagree, k.Hash, k.Slot, fmt.Sprintf("%s: slot %d here, and slot %d there", k.Name, k.Slot, theirs.Census.Keys[i].Slot))
		case !known && theirs.Covers(k.Hash) && c.assignment.Slot(k.Slot).Owner == there.ID:
			note(unknown, k.Hash, k.Slot, fmt.Sprintf("%s in slot %d", k.Name, k.Slot))
		}
	}
	for _, k := range theirs.Census.Keys {
		if _, known := mine.Find(k.Hash); !known && mine.Covers(k.Hash) && c.assignment.Slot(k.Slot).Owner == here.ID {
			note(unknownHere, k.Hash, k.Slot, fmt.Sprintf("one in slot %d", k.Slot))
		}
	}
}

// owners checks that exactly one member reconciles each key of this member's sample.
func (c *comparison) owners(name string, here party, mine *sample) {
	for _, k := range mine.Census.Keys {
		of := c.assignment.Slot(k.Slot)
		var serving []party
		var owner *sample
		for _, p := range c.all {
			s := p.Of[name]
			if s == nil || s.N == 0 {
				continue
			}
			serves, known := s.serves[k.Hash]
			if known && p.ID == of.Owner {
				owner = s
			}
			if serves {
				serving = append(serving, p)
			}
		}
		note := func(what kind, member slots.ID, n uint64, example string) {
			c.doubt(doubt{topic{what, name, member}, k.Hash, of.Epoch}, mine.N, n, example)
		}
		switch {
		case len(serving) == 0 && owner != nil && !of.Draining:
			note(nobody, of.Owner, owner.N, fmt.Sprintf("%s in slot %d", k.Name, k.Slot))
		case len(serving) > 1:
			note(several, serving[1].ID, serving[1].Of[name].N, fmt.Sprintf("%s, also by %s", k.Name, serving[0].Name))
		}
	}
}

// doubt notes a difference. It is a finding if it has lasted long enough.
func (c *comparison) doubt(d doubt, here, there uint64, example string) {
	p := c.doubts[d]
	if p == nil {
		p = &evidence{at: c.at, here: here, there: there}
		c.doubts[d] = p
	}
	p.current, p.example = true, example
	age := c.at.Sub(p.at)
	if d.kind == absent {
		p.found = age >= absentAfter
		return
	}
	p.found = p.found || age >= auditAfter && here >= p.here+auditCounts && there >= p.there+auditCounts
}

// conclude makes a sentence for each topic.
func (c *comparison) conclude() {
	count, example := map[topic]int{}, map[topic]string{}
	for d, p := range c.doubts {
		if p.found {
			count[d.topic]++
			if c.result.Since.IsZero() || p.at.Before(c.result.Since) {
				c.result.Since = p.at
			}
			if was := example[d.topic]; was == "" || p.example < was {
				example[d.topic] = p.example
			}
		}
	}
	for t, n := range count {
		c.result.Findings = append(c.result.Findings, t.sentence(n, example[t]))
	}
	slices.Sort(c.result.Findings)
}

func (t topic) sentence(n int, example string) string {
	keys := cmp.Or(map[int]string{1: "a sampled key"}[n], fmt.Sprintf("%d sampled keys", n)) + ", such as " + example
	of := "controller " + t.controller + ": "
	switch t.kind {
	case absent:
		return of + fmt.Sprintf("it has no workers on %s, so no member reconciles its keys in the slots there; start it on all members", t.member.Name)
	case disagree:
		return of + fmt.Sprintf("%s and this member compute different slots of %s; run the same release, or give its By another name", t.member.Name, keys)
	case unknown:
		return of + fmt.Sprintf("%s owns %s, and its cache does not have the object; compare its cache's scope and log", t.member.Name, keys)
	case unknownHere:
		return of + fmt.Sprintf("this member owns %s, which %s knows, and its cache does not have the object; compare its cache's scope and log", keys, t.member.Name)
	case nobody:
		return of + fmt.Sprintf("%s owns %s, and does not reconcile it; see its log", t.member.Name, keys)
	}
	return of + fmt.Sprintf("%s reconciles %s; run the same release on all members", t.member.Name, keys)
}
