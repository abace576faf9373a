// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/shard"
)

// life is one time that a process holds its Lease. Its term is the Lease's version then.
type life struct{ by, term string }

// write is one stored write of a part.
type write struct {
	life

	version uint64
	site    string // the key
	part    string
	text    int
	saw     uint64 // the version of the part that the writer has seen; 0: none
	at      time.Time
	lost    bool // the writer has not noticed that its assignment was lost
}

// record is what is stored about owners from a version on.
type record struct {
	version    uint64
	members    int
	moving     int  // slots that have no owner, or move to another one
	handedOver int  // bytes
	lost       bool // the assignment is lost, and its owners may not have noticed
	owner      [256]life
	to         [256]string // the member that the slot moves to, and whether it is ready
	at         time.Time
}

func slotOf(site string) uint8 {
	s, err := shard.ByKey().Slot(types.NamespacedName{Namespace: namespace, Name: site})
	if err != nil {
		panic(err) // impossible: there is no user function
	}
	return s
}

// judge orders every write by the versions that the API server gave it. Leases and parts have one
// sequence of versions, so it is certain who owned a key when it was written.
type judge struct {
	records []record
	writes  []write          // not judged yet
	last    map[string]write // by part
	lives   map[string]life  // the newest of each process
	harmed  map[life]int     // that ended without a release: how many late writes are allowed
	lost    []uint64         // versions at which the assignment was lost

	judged, moves, handovers, stale, late int
	broken                                []string
}

func newJudge() *judge {
	return &judge{last: map[string]write{}, lives: map[string]life{}, harmed: map[life]int{}}
}

// settle judges the writes before a version. All records and writes before it are known.
func (j *judge) settle(before uint64) {
	slices.SortFunc(j.writes, func(a, b write) int { return cmp.Compare(a.version, b.version) })
	n, _ := slices.BinarySearchFunc(j.writes, before, func(w write, v uint64) int { return cmp.Compare(w.version, v) })
	for _, w := range j.writes[:n] {
		j.check(w)
	}
	j.writes = slices.Clone(j.writes[n:])
	if i := j.at(before); i > 0 {
		j.records = slices.Clone(j.records[i:])
	}
}

// at returns the index of the record at a version, or -1.
func (j *judge) at(version uint64) int {
	i, _ := slices.BinarySearchFunc(j.records, version, func(r record, v uint64) int { return cmp.Compare(r.version, v) })
	return i - 1
}

func (j *judge) check(w write) {
	j.judged++
	owner := life{}
	if i := j.at(w.version); i >= 0 {
		owner, w.lost = j.records[i].owner[slotOf(w.site)], j.records[i].lost
	}
	was, before := j.last[w.part]
	j.last[w.part] = w
	if owner != w.life {
		if j.harmed[w.life] > 0 { // it was suspended between the fence and the wire
			j.harmed[w.life]--
			j.late++
			return
		}
		j.broken = append(j.broken, fmt.Sprintf("P1: %s wrote %s as version %d in its life %s, and the owner was %q in its life %q",
			w.by, w.part, w.version, w.term, owner.by, owner.term))
		return
	}
	_, crashed := j.harmed[was.life]
	crashed = crashed || was.lost || slices.ContainsFunc(j.lost, func(v uint64) bool { return v > was.version && v < w.version })
	switch {
	case was.life != w.life && before && !crashed:
		j.handovers++
	case was.life == w.life || !before:
		crashed = false
	}
	switch {
	case w.saw == was.version:
	case crashed:
		j.stale++ // allowed: the writes of a crashed owner are unknown
	default:
		j.broken = append(j.broken, fmt.Sprintf("P4: %s wrote %s as version %d and had seen version %d, not version %d of %s; owners since: %s",
			w.by, w.part, w.version, w.saw, was.version, was.by, j.owners(w.site, was.version, w.version)))
	}
}

// owners lists the owners of a site between two versions, each with the version of its record.
func (j *judge) owners(site string, from, to uint64) (s string) {
	slot, was := slotOf(site), life{}
	for i := max(0, j.at(from)); i < len(j.records) && j.records[i].version < to; i++ {
		if is := j.records[i].owner[slot]; is != was {
			s += fmt.Sprintf("%s (version %d, %d bytes handed over) ", cmp.Or(is.by, "none"), j.records[i].version, j.records[i].handedOver)
			was = is
		}
	}
	return strings.TrimSpace(s)
}

// recorded adds a record and counts the slots that have another owner.
func (j *judge) recorded(r record) {
	if n := len(j.records); n > 0 {
		for s, owner := range r.owner {
			if was := j.records[n-1].owner[s]; owner != was && owner != (life{}) {
				j.moves++
			}
		}
	}
	for _, owner := range r.owner {
		j.lives[owner.by] = owner
	}
	j.records = append(j.records, r)
}

// harm notes that the current life of a process ends without a release.
func (j *judge) harm(by string, late int) { j.harmed[j.lives[by]] = late }

// TestJudge: the judge finds what must not happen.
func TestJudge(t *testing.T) {
	a, b := life{"a.1", "7"}, life{"b.1", "8"}
	wrote := func(version uint64, by life, saw uint64) write {
		return write{life: by, version: version, site: "x", part: "x.page", saw: saw}
	}
	for name, test := range map[string]struct {
		writes                 []write
		harmed                 map[life]int
		lost                   []uint64
		handovers, stale, late int
		broken                 string
		unnoticed              bool // record 10 was made after the loss
	}{
		"a graceful move":                        {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 12)}, handovers: 1},
		"the former owner writes after its move": {writes: []write{wrote(12, a, 0), wrote(22, a, 12)}, broken: `P1: a.1 wrote x.page as version 22 in its life 7, and the owner was "b.1"`},
		"the adopter writes before the move":     {writes: []write{wrote(12, b, 0)}, broken: "P1: b.1 wrote x.page as version 12"},
		"an earlier life of the owner writes":    {writes: []write{wrote(12, life{"a.1", "6"}, 0)}, broken: "P1: a.1 wrote x.page as version 12 in its life 6"},
		"nobody owns it yet":                     {writes: []write{wrote(9, a, 0)}, broken: `the owner was ""`},
		"the adopter has not seen a write":       {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 11)}, handovers: 1, broken: "P4: b.1 wrote x.page as version 21 and had seen version 11, not version 12 of a.1"},
		"the owner has not seen its own write":   {writes: []write{wrote(11, a, 0), wrote(12, a, 0)}, broken: "P4: a.1"},
		"it was created before":                  {writes: []write{wrote(21, b, 5)}, broken: "P4: b.1"},
		"the assignment is lost meanwhile":       {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 11)}, lost: []uint64{15}, stale: 1},
		"the assignment was lost before":         {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 11)}, lost: []uint64{11}, handovers: 1, broken: "P4: b.1"},
		"the owner has not noticed the loss":     {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 11)}, lost: []uint64{11}, unnoticed: true, stale: 1},
		"a crash":                                {writes: []write{wrote(11, a, 0), wrote(12, a, 11), wrote(21, b, 11)}, harmed: map[life]int{a: 0}, stale: 1},
		"a crash, and its writes are seen":       {writes: []write{wrote(11, a, 0), wrote(21, b, 11)}, harmed: map[life]int{a: 0}},
		"after a crash it sees its own writes":   {writes: []write{wrote(11, a, 0), wrote(21, b, 11), wrote(22, b, 11)}, harmed: map[life]int{a: 0}, broken: "P4: b.1"},
		"one late write of a suspended process":  {writes: []write{wrote(11, a, 0), wrote(21, b, 11), wrote(22, a, 11), wrote(23, b, 22)}, harmed: map[life]int{a: 1}, late: 1},
		"two late writes of a suspended process": {writes: []write{wrote(11, a, 0), wrote(22, a, 11), wrote(23, a, 22)}, harmed: map[life]int{a: 1}, late: 1, broken: "P1: a.1"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			j.recorded(record{version: 10, owner: ownedBy(a), lost: test.unnoticed})
			j.recorded(record{version: 20, owner: ownedBy(b)})
			j.writes, j.harmed, j.lost = test.writes, maps.Clone(test.harmed), test.lost
			j.settle(100)
			if got := strings.Join(j.broken, "\n"); !strings.Contains(got, test.broken) || test.broken == "" && got != "" {
				t.Errorf("broken: %q, want %q", got, test.broken)
			}
			if j.handovers != test.handovers || j.stale != test.stale || j.late != test.late || j.moves != 256 {
				t.Errorf("%d handovers, %d stale, %d late, %d moves; want %+v", j.handovers, j.stale, j.late, j.moves, test)
			}
		})
	}
}

func ownedBy(l life) (all [256]life) {
	for i := range all {
		all[i] = l
	}
	return all
}
