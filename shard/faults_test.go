// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	internallease "github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

const (
	sessionAnnotation = "setpoint.dev/shard-session"
	seenAnnotation    = "setpoint.dev/shard-seen"
)

// special starts a replica with its own election options and network, and a log.
type special struct {
	name  string
	o     shard.Options
	lasts time.Duration                                  // LeaseDuration; 0: the default
	wrap  func(next http.RoundTripper) http.RoundTripper // or nil
	log   *testkit.Buffer                                // or nil
}

func (f *fleet) startSpecial(s special) *replica {
	f.t.Helper()
	r := &replica{t: f.t, name: s.name, done: make(chan error, 1)}
	cfg := f.api.Config()
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json"
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, r} })
	if s.wrap != nil {
		cfg.Wrap(s.wrap)
	}
	s.o.Election = election()
	s.o.Election.Identity, s.o.Election.LeaseDuration = s.name, s.lasts
	var err error
	r.Group, err = shard.New(cfg, s.o)
	testkit.NoError(f.t, err)
	ctx := f.t.Context()
	if s.log != nil {
		ctx = logr.NewContextWithSlogLogger(ctx, slog.New(slog.NewTextHandler(s.log, nil)))
	}
	f.runIn(ctx, r)
	return r
}

// lines returns how many lines of a log have a text.
func lines(log *testkit.Buffer, text string) int { return strings.Count(log.String(), text) }

// member returns the name of a replica's own Lease.
func (r *replica) member(t *testing.T) string {
	t.Helper()
	name, _, ok := strings.Cut(r.Status().Member, "@")
	if !ok {
		t.Fatalf("%s is no member", r.name)
	}
	return name
}

func (f *fleet) patchLease(name, text string) {
	f.t.Helper()
	_, err := f.client().CoordinationV1().Leases("default").Patch(f.t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "hand"})
	testkit.NoError(f.t, err)
}

// record stores an assignment in the group's Lease, as a member does.
func (f *fleet) record(l *coordinationv1.Lease, text string) *coordinationv1.Lease {
	f.t.Helper()
	leases := f.client().CoordinationV1().Leases("default")
	l = internallease.Held(l, shard.Holder, internallease.NoLimit, time.Now())
	l.Annotations = map[string]string{shard.SlotsAnnotation: text}
	var err error
	if l.UID == "" {
		l, err = leases.Create(f.t.Context(), l, metav1.CreateOptions{FieldManager: slots.Manager})
	} else {
		l, err = leases.Update(f.t.Context(), l, metav1.UpdateOptions{FieldManager: slots.Manager})
	}
	testkit.NoError(f.t, err)
	return l
}

// sealed adds the sum to an assignment.
func sealed(body string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(body))
	return fmt.Sprintf(`%s,"sum":"%016x"}`, body, h.Sum64())
}

// puppet is a member's Lease that the test renews.
type puppet struct {
	*coordinationv1.Lease

	dead bool
}

func (f *fleet) puppet(name string) *puppet {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{shard.GroupLabel: "web"},
		Annotations: map[string]string{sessionAnnotation: "1", seenAnnotation: strconv.Itoa(1 << 40)},
	}}
	l = internallease.Held(l, "holder of "+name, 15*time.Second, time.Now())
	got, err := f.client().CoordinationV1().Leases("default").Create(f.t.Context(), l, metav1.CreateOptions{FieldManager: "setpoint"})
	testkit.NoError(f.t, err)
	return &puppet{Lease: got}
}

// TestP2_MoreMembersThanSlots: the 257th replica waits, one sentence explains it, and it takes
// over when a member dies.
func TestP2_MoreMembersThanSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		by := shard.ByKey().String()
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		text, err := slots.New(by, slots.Record{Version: 1, Missing: true}, time.Now()).Encode()
		testkit.NoError(t, err)
		l = f.record(l, text)
		version, _ := strconv.ParseUint(l.ResourceVersion, 10, 64)
		a, err := slots.Decode(by, slots.Record{Version: version, Manager: slots.Manager, Text: text})
		if err == nil {
			a, err = a.Listed(version)
		}
		var puppets []*puppet
		for i := range slots.MaxMembers {
			p := f.puppet(fmt.Sprintf("web-%03d", i))
			puppets = append(puppets, p)
			if err == nil {
				a, err = a.Join(slots.Member{ID: slots.ID{Name: p.Name, Term: 1}, Weight: 1}, time.Now())
			}
		}
		testkit.NoError(t, err)
		text, err = a.Propose(time.Now()).Encode()
		testkit.NoError(t, err)
		f.record(l, text)
		var log testkit.Buffer
		late := f.startSpecial(special{name: "late", log: &log})
		keep := func(d time.Duration) (counts map[string]int) {
			for until := time.Now().Add(d); time.Now().Before(until); {
				for _, p := range puppets {
					if !p.dead {
						f.api.Put(sim.Leases, internallease.Held(p.Lease, *p.Spec.HolderIdentity, 15*time.Second, time.Now()))
					}
				}
				counts = f.pass(5 * time.Second)
			}
			return counts
		}
		if n := keep(time.Minute)["late"]; n != 0 || len(late.Status().Unserved) > 0 || lines(&log, "level=WARN") > 2 ||
			lines(&log, "no slot for another one; reduce the replicas") == 0 {
			t.Errorf("late owns %d slots, and reports %+v\n%s", n, late.Status().Unserved, log.String())
		}
		puppets[7].dead = true
		testkit.Equal(t, keep(20 * time.Second)["late"], 1, log.String())
	})
}

// TestGroup_AMemberWithoutASlot: its weight is too small. It waits, and takes over.
func TestGroup_AMemberWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{Weight: 1000})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		b := f.start("b", shard.Options{Weight: 1})
		if counts := f.pass(time.Minute); counts["a"] != 256 || len(b.Status().Members) != 2 || len(b.Status().Unserved) > 0 {
			t.Errorf("%v: %+v", counts, b.Status())
		}
		a.stop()
		f.passUntil("the other one", 5*time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
	})
}

// TestP1_AnotherFormat: members of another version of Setpoint own the slots. A replica that cannot
// read their assignment changes nothing, and takes over when they have left.
func TestP1_AnotherFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		older := f.puppet("web-older")
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		l = f.record(l, sealed(`{"format":0,"by":"hash","members":{"web-older":1},"slots":"all"`))
		var log testkit.Buffer
		a := f.startSpecial(special{name: "a", log: &log})
		for range 24 {
			f.api.Put(sim.Leases, internallease.Held(older.Lease, *older.Spec.HolderIdentity, 15*time.Second, time.Now()))
			if n := f.pass(5 * time.Second)["a"]; n != 0 {
				t.Fatalf("a owns %d slots", n)
			}
		}
		testkit.Equal(t, lease(t, f, "web").ResourceVersion, l.ResourceVersion, "a has changed the group's Lease")
		s := a.Status()
		for _, want := range []string{"format 0, not 1", "its members use other settings", "stop them all"} {
			testkit.Contains(t, s.Trouble, want)
		}
		testkit.Equal(t, lines(&log, "the group refuses this replica"), 1)
		testkit.Equal(t, lines(&log, "holder of web-older"), 1)
		testkit.Equal(t, lines(&log, "level=WARN"), 1)
		f.api.Put(sim.Leases, internallease.GivenUp(l, time.Now())) // by the last older member
		f.passUntil("the newer one", 30*time.Second, even(1, 256))
	})
}

// TestP1_DifferentLeaseDurations: members trust their own Leases for different times.
func TestP1_DifferentLeaseDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		short := f.startSpecial(special{name: "short", lasts: 5 * time.Second})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		long := f.startSpecial(special{name: "long", lasts: time.Minute})
		f.passUntil("two members", 2*time.Minute, even(2, 256))
		if counts := f.pass(5 * time.Minute); !even(2, 256)(counts) {
			t.Errorf("%v", counts)
		}
		for _, r := range []*replica{short, long} {
			r.cut.Store(true)
			f.pass(2 * time.Minute)
			r.cut.Store(false)
			f.passUntil("both again", 5*time.Minute, even(2, 256))
		}
	})
}

// editor is a mutating webhook that changes the assignment in each write.
type editor struct {
	http.RoundTripper

	on     *atomic.Bool
	writes *atomic.Int32
}

func (e editor) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Body == nil || h.Method == http.MethodGet {
		return e.RoundTripper.RoundTrip(h)
	}
	body, err := io.ReadAll(h.Body)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(body, []byte(shard.SlotsAnnotation)) {
		e.writes.Add(1)
		if e.on.Load() {
			body = bytes.ReplaceAll(body, []byte(`\"since\"`), []byte(`\"Since\"`))
		}
	}
	h = h.Clone(h.Context())
	h.Body, h.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return e.RoundTripper.RoundTrip(h)
}

// TestP2_AWebhookEditsTheAssignment in each write, from the beginning or later. All slots are
// reported with their age, the writes are few, and one sentence names the cause.
func TestP2_AWebhookEditsTheAssignment(t *testing.T) {
	for name, later := range map[string]bool{"from the beginning": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				on, writes := &atomic.Bool{}, &atomic.Int32{}
				on.Store(!later)
				wrap := func(rt http.RoundTripper) http.RoundTripper { return editor{rt, on, writes} }
				logs := map[string]*testkit.Buffer{}
				for _, name := range []string{"a", "b", "c", "d"} {
					logs[name] = &testkit.Buffer{}
					f.startSpecial(special{name: name, wrap: wrap, log: logs[name]})
				}
				if later {
					f.passUntil("four members", time.Minute, even(4, 256))
					on.Store(true)
					f.start("e", shard.Options{})
					f.all[4].stop()
					f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":"{}"}}}`)
				}
				f.pass(10 * time.Second)
				before := writes.Load()
				testkit.Len(t, f.pass(time.Minute), 0)
				testkit.AtMost(t, writes.Load()-before, 4*60)
				for _, r := range f.all[:4] {
					all, since := unserved(r)
					testkit.Len(t, all, 256, r.name)
					testkit.AtLeast(t, time.Since(since), time.Minute, r.name)
				}
				said := 0
				for _, log := range logs {
					said += lines(log, "look for an admission webhook that changes Leases")
				}
				testkit.NotEqual(t, said, 0)
				testkit.AtMost(t, said, 3*4)
				on.Store(false)
				f.passUntil("four members again", time.Minute, even(4, 256))
			})
		})
	}
}

// TestP2_APersonEditsEachAssignment at once, for a minute.
func TestP2_APersonEditsEachAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for _, name := range []string{"a", "b", "c", "d"} {
			f.start(name, shard.Options{})
		}
		f.passUntil("four members", time.Minute, even(4, 256))
		edits, oldest := 0, map[string]time.Duration{}
		for until := time.Now().Add(time.Minute); time.Now().Before(until); {
			if l := lease(t, f, "web"); l.Annotations[shard.SlotsAnnotation] != "edited" {
				edits++
				f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":"edited"}}}`)
			}
			f.pass(20 * time.Millisecond)
			for _, r := range f.all {
				if _, since := unserved(r); !since.IsZero() {
					oldest[r.name] = max(oldest[r.name], time.Since(since))
				}
			}
		}
		testkit.AtMost(t, edits, 4*60)
		for _, r := range f.all {
			// Between two looks all members may acknowledge an assignment, which begins another
			// age. An age spans many edits.
			if all, _ := unserved(r); len(all) != 256 || oldest[r.name] < 20*time.Second {
				t.Errorf("%s reports %d slots, at most for %s: %+v", r.name, len(all), oldest[r.name], r.Status().Unserved)
			}
		}
		f.passUntil("four members again", time.Minute, even(4, 256))
	})
}

// TestP2_ASlotCacheThatHangs for good: its slots are reported with their age, the others are
// served, and the process can stop.
func TestP2_ASlotCacheThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		kb := newSlotCache()
		defer kb.block()()
		var log testkit.Buffer
		a := f.start("a", shard.Options{SlotCache: newSlotCache()})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		b := f.startSpecial(special{name: "b", o: shard.Options{SlotCache: kb}, log: &log})
		testkit.Equal(t, f.pass(2 * time.Minute)["a"], 256)
		if n := lines(&log, "the objects of new slots are not there yet"); n == 0 || n > 3 {
			t.Errorf("b does not explain why it has no slots:\n%s", log.String())
		}
		a.stop()
		began := time.Now()
		f.pass(time.Minute)
		all, since := unserved(b)
		testkit.Len(t, all, 256)
		testkit.AtLeast(t, time.Since(since), 50*time.Second)
		testkit.Equal(t, since.Before(began), false)
		f.start("c", shard.Options{SlotCache: newSlotCache()})
		f.passUntil("half of them", time.Minute, func(counts map[string]int) bool { return counts["c"] == 128 })
		b.stop()
		f.passUntil("all of them", 10*time.Second, func(counts map[string]int) bool { return counts["c"] == 256 })
		testkit.Equal(t, <-b.done, nil)
	})
}

// TestP1_ForgedProofs: a person edits the Lease of a living member, so that it looks like the Lease
// of a later session, or like a released one. The member does not see that.
func TestP1_ForgedProofs(t *testing.T) {
	for name, edit := range map[string]string{
		"a later session":     `{"metadata":{"annotations":{"setpoint.dev/shard-session":"%s"}}}`,
		"a far later session": `{"metadata":{"annotations":{"setpoint.dev/shard-session":"99999999999"}}}`,
		"a release":           `{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`,
		"no session":          `{"metadata":{"annotations":{"setpoint.dev/shard-session":null}}}`,
		"no label":            `{"metadata":{"labels":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				a := f.start("a", shard.Options{})
				f.start("b", shard.Options{})
				f.passUntil("two members", time.Minute, even(2, 256))
				member := a.member(t)
				a.cut.Store(true)
				f.api.CutWatches()
				f.pass(20 * time.Millisecond)
				if strings.Contains(edit, "%s") {
					edit = fmt.Sprintf(edit, lease(t, f, member).ResourceVersion)
				}
				f.patchLease(member, edit)
				if counts := f.pass(5 * time.Second); counts["a"] != 128 || counts["b"] != 128 {
					t.Errorf("after the edit: %v", counts)
				}
				took := f.passUntil("the other one", time.Minute, func(counts map[string]int) bool { return counts["b"] == 256 })
				t.Logf("all slots are served after %s", took+5*time.Second)
				a.cut.Store(false)
				f.passUntil("both again", 2*time.Minute, even(2, 256))
			})
		})
	}
}

// TestP1_ALabelIsLostUnseen: b's last list does not have the Lease of a, and is newer than that
// Lease. So b reads an older version than the list's, and does not take that for a restored backup.
func TestP1_ALabelIsLostUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		b := f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		a.cut.Store(true)
		b.cut.Store(true)
		f.api.CutWatches()
		f.pass(20 * time.Millisecond)
		f.patchLease(a.member(t), `{"metadata":{"labels":null}}`)
		f.patchLease("web", `{"metadata":{"annotations":{"edited":"later"}}}`)
		f.api.Expire()
		b.cut.Store(false)
		if counts := f.pass(5 * time.Second); counts["a"] != 128 || counts["b"] != 128 {
			t.Errorf("after the edit: %v", counts)
		}
		f.passUntil("the other one", time.Minute, func(counts map[string]int) bool { return counts["b"] == 256 })
		a.cut.Store(false)
		f.passUntil("both again", 2*time.Minute, even(2, 256))
	})
}

// TestGroup_AnEditedMember: a person edits the Lease of a member that works. It stays a member.
func TestGroup_AnEditedMember(t *testing.T) {
	for name, edit := range map[string]string{
		"a later session":  `{"metadata":{"annotations":{"setpoint.dev/shard-session":"99999999999"}}}`,
		"no annotations":   `{"metadata":{"annotations":null}}`,
		"no label":         `{"metadata":{"labels":null}}`,
		"no managedFields": `{"metadata":{"managedFields":[{}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				a := f.start("a", shard.Options{})
				b := f.start("b", shard.Options{})
				f.passUntil("two members", time.Minute, even(2, 256))
				f.pass(time.Second)
				epoch := b.Status().Epoch // each move has a later one
				f.patchLease(a.member(t), edit)
				counts := f.pass(time.Minute)
				testkit.Equal(t, even(2, 256)(counts), true, counts)
				testkit.Equal(t, b.Status().Epoch, epoch)
				testkit.Len(t, b.Status().Unserved, 0)
				a.stop()
				f.passUntil("the other one", 5*time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
			})
		})
	}
}

// TestP1_ALostLabelAndALostAssignment: a list by the label does not show a member that acts.
func TestP1_ALostLabelAndALostAssignment(t *testing.T) {
	for name, edit := range map[string]string{
		"no label":   `{"metadata":{"labels":null}}`,
		"no session": `{"metadata":{"annotations":{"setpoint.dev/shard-session":null}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				a := f.start("a", shard.Options{})
				f.start("b", shard.Options{})
				f.passUntil("two members", time.Minute, even(2, 256))
				member := a.member(t)
				a.cut.Store(true)
				f.api.CutWatches()
				f.pass(20 * time.Millisecond)
				f.patchLease(member, edit)
				f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":null}}}`)
				f.passUntil("the other one", time.Minute, func(counts map[string]int) bool { return counts["b"] == 256 })
			})
		})
	}
}

// unserved returns the slots that a replica reports, and since when the oldest is unserved.
func unserved(r *replica) (all shard.SlotList, since time.Time) {
	for i, u := range r.Status().Unserved {
		all = append(all, u.Slots...)
		if i == 0 {
			since = u.Since
		}
	}
	slices.Sort(all)
	return slices.Compact(all), since
}
