// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestP1_ARecordThatNoMemberWroteIsRefused: an edit by hand, a copy from before, a deletion.
func TestP1_ARecordThatNoMemberWroteIsRefused(t *testing.T) {
	g := newGroup(t, "a", "b")
	good := g.record
	change := func(old, other string) Record {
		r := good
		r.Text = strings.Replace(r.Text, old, other, 1)
		if r.Text == good.Text {
			t.Fatalf("%q is not in %.400s", old, good.Text)
		}
		return r
	}
	sealedAgain := func(old, other string) Record {
		r := change(old, other)
		r.Text = sealed([]byte(r.Text[:strings.LastIndex(r.Text, `,"sum"`)]))
		return r
	}
	put := good
	put.Manager = "kubectl-replace"
	early := good
	early.Version = 1
	for want, r := range map[string]Record{
		"is missing":                        {Version: 99, Missing: true},
		`"kubectl-replace" has written`:     put,
		`do not name the writer`:            {Version: 99, Text: good.Text},
		"the sum of the assignment is":      change(`{"o":0`, `{"o":1`),
		"the sum of the assignment is w":    {Version: 99, Manager: Manager},
		"the sum of the assignment is wr":   {Version: 99, Manager: Manager, Text: "{}"},
		"the sum of the assignment is wro":  change(`"sum":"`, `"sum":"0`),
		"read the assignment: invalid char": sealedAgain(`{"format"`, `{{"format"`),
		"is not before its resourceVersion": early,
		"an owner that is not a member":     sealedAgain(`{"o":0`, `{"o":2`),
		"has an owner that is not a member": sealedAgain(`{"o":0`, `{"o":-7`),
		"has an invalid move":               sealedAgain(`{"o":0`, `{"o":0,"to":0`),
		"slot 0 has an invalid move":        sealedAgain(`{"o":0`, `{"o":0,"ready":true`),
		"refers to an unknown handover":     sealedAgain(`{"o":0`, `{"o":0,"after":[5]`),
		"has the epoch 99":                  sealedAgain(`{"o":0,"e":12`, `{"o":0,"e":99`),
		"before the Leases were listed":     sealedAgain(`"listed":true`, `"listed":false`),
		"it has 255 slots":                  sealedAgain(`"slots":[{"o":0,"e":12,"since":1000000},`, `"slots":[`),
		"member 0 is invalid":               sealedAgain(`"term":1,"weight":1`, `"term":1,"weight":0`),
	} {
		a, err := Decode(settings, r)
		if a != nil || !errors.Is(err, ErrInvalid) || errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), want) {
			t.Errorf("want a refusal with %q, got %v", want, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("not one line: %q", err)
		}
	}
}

// TestP1_OtherSettingsAreLeftAlone: no member replaces the assignment of others (P1).
func TestP1_OtherSettingsAreLeftAlone(t *testing.T) {
	g := newGroup(t, "a")
	newer := g.record
	newer.Text = sealed([]byte(strings.Replace(newer.Text[:strings.LastIndex(newer.Text, `,"sum"`)], `"format":1`, `"format":2`, 1)))
	other := g.record
	other.Text = sealed([]byte(`{"format":3,"members":{"a":1},"slots":"all"`))
	for want, f := range map[string]func() (*Assignment, error){
		"has the format 3, not 1":                              func() (*Assignment, error) { return Decode(settings, other) },
		`is for "namespace/name", and this member uses "name"`: func() (*Assignment, error) { return Decode("name", g.record) },
		"has the format 2":                                     func() (*Assignment, error) { return Decode(settings, newer) },
	} {
		if a, err := f(); a != nil || !errors.Is(err, ErrSettings) || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	a := g.views["a"]
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(a.id) })
	a.Stop(epoch, a.Tasks().Owned...)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(a, "", epoch, a.Tasks().Release...) })
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(a.id) })
	testkit.ErrorIs(t, testkit.Err(Decode("name", g.record)), ErrInvalid, "a group without members keeps its settings")
}

// TestEncode_TheLargestGroupFits: names have the length of generated Pod names, every slot moves,
// and the handovers are full.
func TestEncode_TheLargestGroupFits(t *testing.T) {
	g := newGroup(t)
	a := g.assignment()
	a.version = 9_000_000_000
	for i := range MaxMembers {
		n, err := a.Join(Member{ID: ID{fmt.Sprintf("%063d", i), 9_000_000_000}, Weight: MaxWeight}, epoch)
		testkit.NoError(t, err)
		a = n
	}
	a = a.Propose(epoch)
	for i := 0; a.Room() >= MaxHandover; i++ {
		a.handovers = append(a.handovers, Handover{Epoch: a.epoch - 1, From: a.members[i].ID, Written: strings.Repeat("ww\"", MaxHandover/3)})
	}
	for s := range a.slots {
		of := &a.slots[s]
		of.to, of.ready, of.after = (of.owner+1)%MaxMembers, true, []uint64{a.epoch - 1}
	}
	text, err := a.Encode()
	testkit.NoError(t, err)
	t.Logf("%d bytes", len(text))
	a.members[0].Name = strings.Repeat("a", MaxSize)
	testkit.ErrorContains(t, testkit.Err(a.Encode()), "more than 163840", "too long")
}

// FuzzP1_Decode checks P1 with any text: what is accepted satisfies the invariants, and reads back
// equal. The sum is added, because a fuzzer cannot guess it.
func FuzzP1_Decode(f *testing.F) {
	g := newGroup(&testing.T{}, "a", "b")
	body := g.record.Text[:strings.LastIndex(g.record.Text, `,"sum"`)]
	f.Add(body)
	f.Add(strings.Replace(body, `{"o":0`, `{"o":-5`, 1))
	f.Add(strings.Replace(body, `{"o":0`, `{"o":0,"to":-5`, 1))
	f.Fuzz(func(t *testing.T, body string) {
		a, err := Decode(settings, Record{Version: 1 << 40, Manager: Manager, Text: sealed([]byte(body))})
		if err != nil {
			return
		}
		testkit.NoError(t, a.valid())
		v := NewView(ID{"a", 1}, settings, epoch)
		_ = v.see(1<<40, a, nil, epoch)
		v.Tasks()
		v.Unserved(nil)
		testkit.NoError(t, a.Propose(epoch).valid(), "a proposal breaks the invariants")
		text, err := a.Encode()
		if err != nil {
			return
		}
		b, err := Decode(settings, Record{Version: 1 << 40, Manager: Manager, Text: text})
		testkit.NoError(t, err)
		if again, _ := b.Encode(); again != text || !json.Valid([]byte(text)) {
			t.Fatal("it reads back as another assignment")
		}
	})
}
