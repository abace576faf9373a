// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"math/bits"
	"slices"
)

// fair is start-time fair queueing (Goyal, Vin and Cheng, 1996) in two levels: lanes, called
// classes here, and in each class tenants.
//
// A flow is one tenant's ready keys in one class. Each class and flow with ready keys has a tag,
// its virtual start time. The lowest tag is served next: virtual time becomes that tag, and the tag
// grows by 1/weight. A class or flow that becomes ready again starts at virtual time, or at its old
// tag if that is later. So it gains nothing by leaving.
type fair struct {
	classes []share
	top     float64 // virtual time of the classes
	ready   int
	busy    uint32 // bit c: class c has a ready key

	tenants    []tenant
	tenantFree []uint32
	byName     map[string]uint32
	recent     [256]uint32 // index plus one of tenants used last
	idle       int         // without keys
	sweepAt    int         // sweep at this many idle tenants
	flows      []flow      // by tenant*len(classes) + class
	seq        uint64
}

// share is one lane: see lanesOf.
type share struct {
	class  Class
	weight float64
	tag    tag
	ready  int

	virtual float64 // of the class's flows
	// An empty flow stays until virtual time passes its tag.
	flows heap[flowNode]
}

// tag is a virtual start time: base + served/weight, so rounding errors do not add up.
type tag struct {
	value  float64
	base   float64
	served float64
}

func (t *tag) start(at float64) { *t = tag{value: at, base: at} }

func (t *tag) serve(weight float64) {
	t.served++
	t.value = t.base + t.served/weight
}

type tenant struct {
	name   string
	weight float64
	keys   int
	ready  int
}

type flow struct {
	list
	tag tag
}

type flowNode struct {
	value  float64
	seq    uint64 // equal tags: the flow served longest ago comes first
	tenant uint32
}

func (a flowNode) before(b flowNode) bool {
	return a.value < b.value || a.value == b.value && a.seq < b.seq
}

func (a flowNode) id() uint32 { return a.tenant }

// rebaseAt is the virtual time at which all tags start near zero again, so that they stay exact.
const rebaseAt = 1 << 26

func (f *fair) tenant(name string, weight float64) uint32 {
	recent := f.recentOf(name)
	i := *recent - 1
	if *recent == 0 || f.tenants[i].name != name {
		known := false
		if i, known = f.byName[name]; !known {
			i = f.newTenant(name)
			f.idle++
		}
		*recent = i + 1
	}
	t := &f.tenants[i]
	if t.keys == 0 {
		f.idle--
		f.reweigh(i, weight)
	}
	t.keys++
	return i
}

// recentOf avoids the map, which takes a tenth of the time of an add. Names mostly differ in their
// lengths and last letters.
func (f *fair) recentOf(name string) *uint32 {
	h := len(name)
	if h > 1 {
		h += int(name[h-1]) + int(name[h-2])<<4
	}
	return &f.recent[h%len(f.recent)]
}

func (f *fair) newTenant(name string) uint32 {
	var i uint32
	if n := len(f.tenantFree); n > 0 {
		i = f.tenantFree[n-1]
		f.tenantFree = f.tenantFree[:n-1]
	} else {
		i = uint32(len(f.tenants))
		f.tenants = append(f.tenants, tenant{})
		for range f.classes {
			f.flows = append(f.flows, flow{})
		}
	}
	f.tenants[i].name = name
	f.byName[name] = i
	return i
}

func (f *fair) reweigh(i uint32, weight float64) {
	if f.tenants[i].weight == weight {
		return
	}
	f.tenants[i].weight = weight
	n := uint32(len(f.classes))
	for k := i * n; k < (i+1)*n; k++ {
		f.flows[k].tag.start(f.flows[k].tag.value)
	}
}

// minIdle tenants without keys are always kept.
const minIdle = 1024

func (f *fair) leave(i uint32) {
	t := &f.tenants[i]
	t.keys--
	if t.keys > 0 {
		return
	}
	f.idle++
	if f.idle >= f.sweepAt {
		f.sweep()
	}
}

func (f *fair) sweep() {
	for name, i := range f.byName {
		tagged := slices.ContainsFunc(f.classes, func(cl share) bool { return cl.flows.has(i) })
		if f.tenants[i].keys > 0 || tagged {
			continue
		}
		delete(f.byName, name)
		f.tenants[i] = tenant{}
		f.tenantFree = append(f.tenantFree, i)
		f.idle--
	}
	clear(f.recent[:])
	f.sweepAt = max(minIdle, 2*f.idle, len(f.byName))
}

func (f *fair) flow(tenant uint32, c uint8) uint32 { return tenant*uint32(len(f.classes)) + uint32(c) }

func (f *fair) tagged(cl *share, tenant uint32, t *tag) {
	f.seq++
	cl.flows.set(flowNode{t.value, f.seq, tenant})
}

// joined counts a ready key. The caller links it.
func (f *fair) joined(tenant uint32, c uint8) {
	cl := &f.classes[c]
	if !cl.flows.has(tenant) {
		t := &f.flows[f.flow(tenant, c)].tag
		t.start(cl.virtual)
		f.tagged(cl, tenant, t)
	}
	if cl.ready == 0 && cl.tag.value < f.top {
		cl.tag.start(f.top)
	}
	cl.ready++
	f.ready++
	f.tenants[tenant].ready++
	f.busy |= 1 << c
}

// left is the reverse of joined. The caller has unlinked the key.
func (f *fair) left(tenant uint32, c uint8) {
	cl := &f.classes[c]
	cl.ready--
	f.ready--
	f.tenants[tenant].ready--
	if cl.ready == 0 {
		f.busy &^= 1 << c
		cl.flows.clear()
		cl.virtual = 0
	}
	if f.ready == 0 {
		f.top = 0
		for i := range f.classes {
			if t := &f.classes[i].tag; t.value != 0 {
				t.start(0)
			}
		}
	}
}

func (f *fair) readyByTenant() map[string]int {
	ready := map[string]int{}
	for i := range f.tenants {
		if t := &f.tenants[i]; t.ready > 0 {
			ready[t.name] = t.ready
		}
	}
	return ready
}

// choose returns the class and tenant to serve next. A key must be ready. Then call served.
func (f *fair) choose() (c uint8, tenant uint32) {
	best := bits.TrailingZeros32(f.busy)
	for rest := f.busy & (f.busy - 1); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if f.classes[i].tag.value <= f.classes[best].tag.value {
			best = i // equal tags: the higher class comes first
		}
	}
	cl := &f.classes[best]
	for {
		tenant = cl.flows.nodes[0].tenant
		if f.flows[f.flow(tenant, uint8(best))].head != 0 {
			return uint8(best), tenant
		}
		cl.flows.drop(tenant)
	}
}

func (f *fair) served(c uint8, tenant uint32) {
	cl := &f.classes[c]
	f.top = cl.tag.value
	cl.tag.serve(cl.weight)
	if f.top >= rebaseAt {
		f.rebaseClasses()
	}

	t := &f.flows[f.flow(tenant, c)].tag
	cl.virtual = t.value
	t.serve(f.tenants[tenant].weight)
	f.tagged(cl, tenant, t)
	if cl.virtual >= rebaseAt {
		f.rebaseFlows(cl, c)
	}
}

func (f *fair) rebaseClasses() {
	for i := range f.classes {
		t := &f.classes[i].tag
		t.start(max(0, t.value-f.top))
	}
	f.top = 0
}

func (f *fair) rebaseFlows(cl *share, c uint8) {
	for i := range cl.flows.nodes {
		n := &cl.flows.nodes[i]
		t := &f.flows[f.flow(n.tenant, c)].tag
		t.start(t.value - cl.virtual)
		n.value = t.value
	}
	cl.virtual = 0
}
