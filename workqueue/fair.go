// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"math/bits"
	"slices"
)

// fair is start-time fair queueing (Goyal, Vin and Cheng, 1996) in two levels: classes, and in each class tenants.
//
// A backlogged class or flow has a tag, its virtual start time. The one with the lowest tag is served
// next: virtual time becomes that tag, and the tag grows by 1/weight. One that becomes backlogged
// starts at virtual time, or where it left off if that is later, and so does not gain by coming and
// going. A flow is one tenant's ready keys of one class.
type fair struct {
	classes []share
	top     float64 // virtual time of the classes
	ready   int
	busy    uint32 // a bit for each class that has a ready key

	tenants    []tenant
	tenantFree []uint32
	byName     map[string]uint32
	recent     [256]uint32 // tenants used last, plus one: see recentOf
	idle       int         // tenants without a key
	sweepAt    int         // sweep once this many are idle
	flows      []flow      // by tenant*len(classes) + class
	seq        uint64
}

// share is one class.
type share struct {
	class  Class
	weight float64
	tag    tag
	ready  int

	virtual float64        // virtual time of the class's flows
	flows   heap[flowNode] // those that have a tag; also empty ones, until virtual time passes their tag
}

// tag is a virtual start time: base + served/weight, computed anew each time so that no rounding adds up.
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
	keys   int // entries that refer to it
}

// flow is a list of entries, linked by them.
type flow struct {
	list
	tag tag
}

// flowNode is a flow in the heap of its class.
type flowNode struct {
	value  float64 // of its tag
	seq    uint64  // among equal tags the one served longest ago comes first
	tenant uint32
}

func (a flowNode) before(b flowNode) bool {
	return a.value < b.value || a.value == b.value && a.seq < b.seq
}

func (a flowNode) id() uint32 { return a.tenant }

// rebaseAt is the virtual time at which tags are moved back to zero, so that they stay exact.
const rebaseAt = 1 << 26

func newFair(classes []share) fair {
	return fair{classes: classes, byName: map[string]uint32{}, sweepAt: minIdle}
}

// tenant returns the index of a tenant, one of whose keys is about to refer to it.
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

// recentOf returns the place in recent for a name. Names mostly differ in their lengths and last
// letters. The map costs an add with tenants a tenth of its time.
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

// reweigh gives a tenant without keys its weight; what is served from now on counts with it.
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

// minIdle is how many tenants without a key are remembered in any case.
const minIdle = 1024

// leave notes that a key no longer refers to tenant i.
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

// sweep forgets the tenants that have neither a key nor a tag.
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

// flow returns the index of a tenant's flow in class c.
func (f *fair) flow(tenant uint32, c uint8) uint32 { return tenant*uint32(len(f.classes)) + uint32(c) }

// tagged gives a flow its place in the heap of its class.
func (f *fair) tagged(cl *share, tenant uint32, t *tag) {
	f.seq++
	cl.flows.set(flowNode{t.value, f.seq, tenant})
}

// joined counts one more ready key of a tenant in class c; the caller links it.
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
	f.busy |= 1 << c
}

// left counts one ready key of class c less; the caller has unlinked it.
func (f *fair) left(c uint8) {
	cl := &f.classes[c]
	cl.ready--
	f.ready--
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

// choose returns the class and the tenant to serve next; there is a ready key. It does not count it as served.
func (f *fair) choose() (c uint8, tenant uint32) {
	best := bits.TrailingZeros32(f.busy)
	for rest := f.busy & (f.busy - 1); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if f.classes[i].tag.value <= f.classes[best].tag.value {
			best = i // among equal tags the higher class comes first
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

// served notes that a tenant was served one key in class c, as choose has returned.
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
