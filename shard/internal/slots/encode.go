// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Manager is the field manager of all writes of the stored assignment. A record that another
// manager has written is invalid, even if it is a copy of an earlier one.
const Manager = "setpoint-shard"

// ErrInvalid matches the error of a record without an assignment that a member has written: it is
// missing, or was edited or put back by hand. [New] replaces it.
var ErrInvalid = errors.New("no member has written this; the slots wait until each member has acknowledged a new assignment")

// ErrSettings matches the error of a record of a group with another hash, number of slots or
// format. The member must not replace it, and stays a standby.
var ErrSettings = errors.New("its members use other settings; " +
	"stop them all, wait until the assignment has no members, and start them with the new settings")

// Record is the stored object as it was read from the API server.
type Record struct {
	// Version is its resourceVersion. If it is missing, this is the version of the list without it,
	// or of its deletion.
	Version uint64
	// Missing reports that there is no object.
	Missing bool
	// Manager is the field manager that last wrote the text, from metadata.managedFields.
	Manager string
	// Text is the encoded assignment.
	Text string
}

// Format is the version of the encoding. Members with another one are refused.
const Format = 1

type document struct {
	Format    int            `json:"format"`
	By        string         `json:"by"`
	Epoch     uint64         `json:"epoch"`
	Listed    bool           `json:"listed"`
	Waiting   []ID           `json:"waiting,omitempty"`
	Members   []Member       `json:"members"`
	Slots     []documentSlot `json:"slots"`
	Handovers []Handover     `json:"handovers,omitempty"`
}

type documentSlot struct {
	Owner *int16   `json:"o,omitempty"`
	To    *int16   `json:"to,omitempty"`
	Ready bool     `json:"ready,omitempty"`
	Epoch uint64   `json:"e,omitempty"`
	Since int64    `json:"since,omitempty"`
	After []uint64 `json:"after,omitempty"`
}

// Encode returns the text to store, of at most MaxSize bytes.
func (a *Assignment) Encode() (string, error) {
	d := document{
		Format: Format, By: a.by, Epoch: a.epoch, Listed: a.listed, Waiting: a.waiting,
		Members: a.members, Handovers: a.handovers, Slots: make([]documentSlot, Slots),
	}
	for s := range a.slots {
		of := &a.slots[s]
		d.Slots[s] = documentSlot{place(of.owner), place(of.to), of.ready, of.epoch, of.since, of.after}
	}
	body, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("shard: encode the assignment: %w", err)
	}
	text := sealed(body[:len(body)-1])
	if len(text) > MaxSize {
		return "", fmt.Errorf("shard: the assignment has %d bytes, more than %d; wait until members settle, or use shorter names of Leases", len(text), MaxSize)
	}
	return text, nil
}

// sealed adds the sum, FNV-1a 64 of the text before it. It is the same for all formats.
func sealed(body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(body) // it cannot fail
	return fmt.Sprintf(`%s,"sum":"%016x"}`, body, h.Sum64())
}

func intact(text string) bool {
	i := strings.LastIndex(text, `,"sum":"`)
	return i > 0 && sealed([]byte(text[:i])) == text
}

func place(i int16) *int16 {
	if i == none {
		return nil
	}
	return &i
}

// Decode reads a record. Its errors match ErrInvalid, or ErrSettings if the group uses other
// settings than by. A group without members can change its settings: its record is then invalid.
func Decode(by string, r Record) (*Assignment, error) {
	if r.Missing {
		return nil, fmt.Errorf("shard: the assignment is missing: %w", ErrInvalid)
	}
	if r.Manager == "" {
		return nil, fmt.Errorf("shard: the Lease's managedFields do not name the writer of the assignment: %w", ErrInvalid)
	}
	if r.Manager != Manager {
		return nil, fmt.Errorf("shard: %q has written the assignment: %w", r.Manager, ErrInvalid)
	}
	if !intact(r.Text) {
		return nil, fmt.Errorf("shard: the sum of the assignment is wrong: %w", ErrInvalid)
	}
	d := document{}
	err := json.Unmarshal([]byte(r.Text), &d)
	if d.Format != Format && !errors.As(err, new(*json.SyntaxError)) { // it may have other types
		return nil, fmt.Errorf("shard: the assignment has the format %d, not %d: %w", d.Format, Format, ErrSettings)
	}
	var a *Assignment
	if err == nil {
		a, err = d.assignment(r)
	}
	if err != nil {
		return nil, fmt.Errorf("shard: read the assignment: %w: %w", err, ErrInvalid)
	}
	if a.by != by {
		return nil, a.otherSettings(by)
	}
	return a, nil
}

func (a *Assignment) otherSettings(by string) error {
	err := ErrSettings
	if len(a.members) == 0 && !a.recovering() {
		err = ErrInvalid // no member uses the other settings any more
	}
	return fmt.Errorf("shard: the assignment is for %q, and this member uses %q: %w", a.by, by, err)
}

func (d *document) assignment(r Record) (*Assignment, error) {
	if d.Epoch >= r.Version {
		return nil, fmt.Errorf("its epoch %d is not before its resourceVersion %d", d.Epoch, r.Version)
	}
	a := &Assignment{
		by: d.By, version: r.Version, epoch: d.Epoch, listed: d.Listed, waiting: d.Waiting,
		members: d.Members, handovers: d.Handovers,
	}
	if len(d.Slots) != Slots || len(d.Members) > MaxMembers {
		return nil, fmt.Errorf("it has %d slots and %d members", len(d.Slots), len(d.Members))
	}
	for s := range d.Slots {
		of := &d.Slots[s]
		a.slots[s] = slot{index(of.Owner), index(of.To), of.Ready, of.Epoch, of.Since, of.After}
	}
	return a, a.valid()
}

func index(i *int16) int16 {
	if i == nil {
		return none
	}
	return *i
}

// valid checks the invariants of an assignment.
func (a *Assignment) valid() error {
	for i, m := range a.members {
		if m.Name == "" || m.Term == 0 || m.Weight < 1 || m.Weight > MaxWeight || i > 0 && a.members[i-1].Name >= m.Name {
			return fmt.Errorf("member %d is invalid: %s of weight %d", i, m.ID, m.Weight)
		}
	}
	for s := range a.slots {
		if err := a.validSlot(&a.slots[s]); err != nil {
			return fmt.Errorf("slot %d %w", s, err)
		}
	}
	return nil
}

func (a *Assignment) validSlot(of *slot) error {
	n := int16(len(a.members)) //nolint:gosec // at most MaxMembers
	known := func(epoch uint64) bool {
		return slices.ContainsFunc(a.handovers, func(h Handover) bool { return h.Epoch == epoch })
	}
	switch {
	case of.owner < none || of.owner >= n || of.to < none || of.to >= n:
		return errors.New("has an owner that is not a member")
	case of.epoch > a.epoch || of.owner != none && of.epoch == 0:
		return fmt.Errorf("has the epoch %d", of.epoch)
	case of.to != none && (of.owner == none || of.owner == of.to), of.ready && of.to == none:
		return errors.New("has an invalid move")
	case of.owner != none && !a.listed:
		return errors.New("has an owner before the Leases were listed")
	case !slices.IsSorted(of.after) || slices.ContainsFunc(of.after, func(e uint64) bool { return !known(e) }):
		return errors.New("refers to an unknown handover")
	}
	return nil
}
