// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const s = time.Second

// record returns a Lease of a version.
func record(version int, holder string, d time.Duration) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: strconv.Itoa(version)}}
	return Held(l, holder, d, time.Unix(0, 0))
}

// TestL1_OnlyAReleaseShortensTheWait checks the arithmetic alone. See
// TestL1_WhatIsDoneByHandDoesNotShortenTheWait for the elector.
func TestL1_OnlyAReleaseShortensTheWait(t *testing.T) {
	type look struct {
		l    *coordinationv1.Lease
		mine bool
		at   time.Duration
	}
	held := look{record(1, "b", 15*s), false, 0}
	for name, c := range map[string]struct {
		looks []look
		left  time.Duration // at 10 s
	}{
		"none was ever seen":       {[]look{{nil, false, 5 * s}}, -10 * s},
		"held":                     {[]look{held}, 5 * s},
		"seen again":               {[]look{held, {held.l, false, 9 * s}}, 5 * s},
		"renewed":                  {[]look{held, {record(2, "b", 15*s), false, 9 * s}}, 14 * s},
		"of a longer duration":     {[]look{held, {record(2, "b", 60*s), false, 9 * s}}, 59 * s},
		"of a shorter duration":    {[]look{held, {record(2, "b", 1*s), false, 9 * s}}, 14 * s},
		"released":                 {[]look{held, {GivenUp(record(2, "b", 15*s), time.Unix(9, 0)), false, 9 * s}}, -1 * s},
		"without a holder":         {[]look{held, {record(2, "", 15*s), false, 9 * s}}, 14 * s},
		"without any holder":       {[]look{{record(1, "", 15*s), false, 9 * s}}, -10 * s},
		"without, when it is ours": {[]look{{record(1, "a", 15*s), true, 8 * s}, {record(2, "", 15*s), false, 9 * s}}, -10 * s},
		"without, of a longer one": {[]look{{record(1, "b", 60*s), false, 0}, {record(2, "", 0), false, 9 * s}}, 59 * s},
		"deleted":                  {[]look{held, {nil, false, 9 * s}}, 5 * s},
		"our own record, put back": {[]look{held, {record(2, "a", 15*s), true, 9 * s}}, 5 * s},
		"taken after the release":  {[]look{held, {GivenUp(record(2, "b", 15*s), time.Unix(9, 0)), false, 8 * s}, {record(3, "c", 15*s), false, 9 * s}}, 14 * s},
	} {
		r := Rival{Least: 15 * s}
		for _, look := range c.looks {
			before := r.seen
			testkit.Equal(t, r.See(look.l, look.mine, look.at), before != VersionOf(look.l), name, "changed")
		}
		testkit.Equal(t, r.Left(10*s), c.left, name, "are left")
	}
}

// TestL1_AMissingLeaseOfAnother: a record of another process, or Known, means that it must be held
// first.
func TestL1_AMissingLeaseOfAnother(t *testing.T) {
	for name, c := range map[string]struct {
		see   func(r *Rival)
		known bool
		lasts time.Duration
	}{
		"never seen":     {func(r *Rival) { r.See(nil, false, 0) }, false, 15 * s},
		"ours":           {func(r *Rival) { r.See(record(1, "a", 15*s), true, 0) }, false, 15 * s},
		"ours, long ago": {func(r *Rival) { r.See(record(1, "a", 15*s), true, 0); r.Known = true }, true, 15 * s},
		"another's":      {func(r *Rival) { r.See(record(1, "b", 40*s), false, 0) }, true, 40 * s},
		"a short one":    {func(r *Rival) { r.See(record(1, "b", s), false, 0) }, true, 15 * s},
		"without limit":  {func(r *Rival) { r.See(record(1, "b", NoLimit), false, 0) }, true, 15 * s},
	} {
		r := Rival{Least: 15 * s}
		c.see(&r)
		r.See(nil, false, s)
		testkit.Equal(t, r.Known, c.known, name)
		testkit.Equal(t, r.Lasts(), c.lasts, name)
	}
}

// TestRecords: writes keep the version and the rest of the Lease, and count the holders.
func TestRecords(t *testing.T) {
	at := time.Unix(100, 0)
	unborn := Acquired(&coordinationv1.Lease{}, "a", 15*s, at)
	if Holder(unborn) != "a" || Duration(unborn) != 15*s || *unborn.Spec.LeaseTransitions != 0 || !unborn.Spec.AcquireTime.Time.Equal(at) {
		t.Errorf("a new Lease: %+v", unborn.Spec)
	}
	before := record(7, "b", 15*s)
	before.Labels = map[string]string{"on": "yes"}
	for name, c := range map[string]struct {
		got      *coordinationv1.Lease
		holder   string
		acquired bool
	}{
		"renewed":  {Held(before, "b", 15*s, at), "b", false},
		"acquired": {Acquired(before, "a", 15*s, at), "a", true},
		"released": {GivenUp(before, at), "", true},
	} {
		l := c.got
		if Holder(l) != c.holder || l.ResourceVersion != "7" || l.Labels["on"] != "yes" || !l.Spec.RenewTime.Time.Equal(at) ||
			c.acquired != (l.Spec.AcquireTime != nil) || Released(l) != (c.holder == "") {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if Holder(before) != "b" || before.Spec.RenewTime.Time.Equal(at) {
		t.Errorf("the record was changed: %+v", before.Spec)
	}
	for transitions, want := range map[int32]int32{0: 1, 7: 8, -1: 1, math.MaxInt32: 1} {
		before.Spec.LeaseTransitions = &transitions
		testkit.Equal(t, *Acquired(before, "a", 15*s, at).Spec.LeaseTransitions, want, fmt.Sprintf("%d transitions become", transitions))
		testkit.Equal(t, *Acquired(before, "b", 15*s, at).Spec.LeaseTransitions, max(want-1, 0), fmt.Sprintf("of the same holder, %d transitions become", transitions))
	}
}
