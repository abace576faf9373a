// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// plane is the API server of a run. Rules apply only to the clients of config.
type plane interface {
	config() *rest.Config // a new client, behind the rules
	admin() *rest.Config  // persons and the judge
	add(r fault.Rule) *fault.Fault
	cut(m fault.Match) int
	// halfOpen makes connections half-open for a time: of one client on the sim, and the existing
	// ones of all clients on the real plane, where new ones work. It returns its effects.
	halfOpen(cfg *rest.Config, d time.Duration) int
	// backup returns how to restore what the API server has now, or nil if that is not possible.
	backup() (restore func())
	// pause lets time pass: as much as that on the sim, less on a real plane.
	pause(d time.Duration)
	quietLimit() time.Duration // of the caches; 0 is the default
	leaseDuration() time.Duration
}

type simPlane struct{ *sim.Server }

func newSimPlane() *simPlane {
	return &simPlane{sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases, sim.Events,
		sim.Resource{Group: boards.Group, Version: boards.Version, Kind: "Board", Name: boards.Resource, Namespaced: true})}
}

func (p *simPlane) config() *rest.Config          { return p.Config() }
func (p *simPlane) admin() *rest.Config           { return p.Config() }
func (p *simPlane) add(r fault.Rule) *fault.Fault { return p.Add(r) }
func (p *simPlane) cut(m fault.Match) int         { return p.Cut(m) }
func (p *simPlane) halfOpen(cfg *rest.Config, d time.Duration) int {
	f := p.Add(fault.Rule{Match: fault.Match{Config: cfg}, Hold: true, Freeze: true})
	defer f.Remove()
	p.pause(d)
	return f.Hits()
}

func (p *simPlane) pause(d time.Duration)        { <-time.After(d) }
func (p *simPlane) quietLimit() time.Duration    { return 0 }
func (p *simPlane) leaseDuration() time.Duration { return 15 * time.Second }

func (p *simPlane) backup() (restore func()) {
	b := p.Backup()
	return sync.OnceFunc(b.Restore)
}
