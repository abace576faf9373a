// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// cause is what few reasons differ in.
type cause struct{ source, event string }

func (c *cause) of(r *Reason) bool { return c.event == r.Event && c.source == r.Source }

// causes gives each cause an id, by which notes refer to it. Id 0 is that of the empty one.
type causes struct {
	byID    []cause // those that are in free are empty
	ids     map[cause]uint32
	free    []uint32
	recent  [16]uint32 // the last ones used: see recentOf
	sweepAt int        // sweep once there are this many
}

// minCauses is how many causes are remembered in any case.
const minCauses = 1024

func newCauses() causes {
	return causes{byID: []cause{{}}, ids: map[cause]uint32{{}: 0}, sweepAt: minCauses}
}

// recentOf returns the place in recent for the cause of a reason, so that the map is seldom asked. What mostly
// differs are the lengths of the sources' names and the first letters of events.
func (s *causes) recentOf(r *Reason) *uint32 {
	h := len(r.Source)
	if r.Event != "" {
		h += int(r.Event[0])
	}
	return &s.recent[h%len(s.recent)]
}

func (s *causes) add(c cause) uint32 {
	var id uint32
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		id = uint32(len(s.byID))
		s.byID = append(s.byID, cause{})
	}
	s.byID[id], s.ids[c] = c, id
	return id
}

// causeOf returns the id of a reason's cause.
func (s *notes) causeOf(r *Reason) uint32 {
	recent := s.causes.recentOf(r)
	if s.causes.byID[*recent].of(r) {
		return *recent
	}
	c := cause{r.Source, r.Event}
	id, ok := s.causes.ids[c]
	if !ok {
		if len(s.causes.ids) >= s.causes.sweepAt {
			s.sweep()
		}
		id = s.causes.add(c)
	}
	*recent = id
	return id
}

// sweep forgets the causes that no note refers to: whatever the host puts into its reasons, there are never many more
// causes than notes. It looks at about four notes for each cause that has come since the last time.
func (s *notes) sweep() {
	c := &s.causes
	used := make([]bool, len(c.byID))
	used[0] = true
	for i := uint32(1); i < s.slab.used; i++ {
		used[s.slab.at(i).cause] = true
	}
	for what, id := range c.ids {
		if !used[id] {
			delete(c.ids, what)
			c.byID[id] = cause{}
			c.free = append(c.free, id)
		}
	}
	clear(c.recent[:])
	c.sweepAt = max(minCauses, 2*len(c.ids), len(c.ids)+int(s.slab.used)/4)
}
