// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	auditRoom   = 1536       // bytes for sampled keys in the annotation
	sampledSize = 8 + 1 + 1  // bytes for each, before base64
	encodedSize = 4 * 4      // bytes for each, in base64
	served      = byte(0x01) // the last of these bytes
)

// notice is what a member shows of its audit.
type notice struct {
	// From is where the next sample begins.
	From uint64 `json:"from,string"`
	// Found reports whether there are findings. Then the sampled keys stay the same.
	Found bool `json:"found,omitempty"`
	// Of has the samples of controllers with workers.
	Of map[string]*sample `json:"of"`
}

// sample is a Census of a member. It has no Census if its N is 0: the caches are not synced yet.
type sample struct {
	N    uint64 `json:"n,omitempty"`
	From uint64 `json:"from,string,omitempty"`
	To   uint64 `json:"to,string,omitempty"`
	Keys []byte `json:"keys,omitempty"` // sampledSize bytes each

	*owned.Census `json:"-"`

	serves map[uint64]bool // the hashes of keys that are served
}

// annotations are on the member's Lease while a life holds it. The acquisition clears them.
func (p *process) annotations(t term.Token) map[string]string {
	seen, audit := "", ""
	if t.ResourceVersion != "" {
		seen, audit = strconv.FormatUint(p.saw.Load(), 10), p.notice().String()
	}
	return map[string]string{
		lifeAnnotation: t.ResourceVersion, seenAnnotation: seen, settingsAnnotation: p.settings(), auditAnnotation: audit,
	}
}

// notice returns what this process shows of its audit.
func (p *process) notice() *notice {
	all := p.owned.Censuses()
	n := &notice{From: p.owned.From(), Found: len(p.status.Load().Audit.Findings) > 0, Of: map[string]*sample{}}
	most := auditRoom / encodedSize / max(1, len(all))
	for name, c := range all {
		n.Of[name] = sampleOf(c, min(most, owned.MostSampled))
	}
	return n
}

func (n *notice) String() string {
	text, _ := json.Marshal(n) // it cannot fail
	return string(text)
}

func sampleOf(c *owned.Census, most int) *sample {
	if c != nil {
		c = c.Limited(most)
	}
	if c == nil {
		return &sample{}
	}
	s := &sample{N: c.N, From: c.From, To: c.To, Census: c, serves: map[uint64]bool{}}
	for _, k := range c.Keys {
		s.serves[k.Hash] = c.Serves(k.Slot)
		s.Keys = binary.BigEndian.AppendUint64(s.Keys, k.Hash)
		s.Keys = append(s.Keys, k.Slot, map[bool]byte{true: served}[s.serves[k.Hash]])
	}
	return s
}

// noticeOf returns what a member's Lease shows, or nil if it shows nothing.
func noticeOf(l *coordinationv1.Lease) *notice {
	n := &notice{}
	if l == nil || json.Unmarshal([]byte(l.Annotations[auditAnnotation]), n) != nil {
		return nil
	}
	for name, s := range n.Of {
		if s == nil || len(s.Keys)%sampledSize != 0 {
			delete(n.Of, name)
		} else if s.N > 0 {
			s.decode()
		}
	}
	return n
}

func (s *sample) decode() {
	s.Census, s.serves = &owned.Census{N: s.N, From: s.From, To: s.To}, map[uint64]bool{}
	for of := range slices.Chunk(s.Keys, sampledSize) {
		hash := binary.BigEndian.Uint64(of)
		s.Census.Keys = append(s.Census.Keys, owned.Sampled{Hash: hash, Slot: of[8]})
		s.serves[hash] = of[9] == served
	}
}
