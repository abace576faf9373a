// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// duties are the terms whose work has not returned yet: one, unless that of an earlier one does not stop.
type duties struct {
	lease         string
	leaseDuration time.Duration
	grace         time.Duration

	mu  sync.Mutex // guards what follows, and each duty
	all []*duty
}

// duty is one of them.
type duty struct {
	renewed time.Time // when the last renewal was sent that succeeded
	lost    time.Time // zero: it is not
}

// begin adds a term.
func (d *duties) begin(sent time.Time) *duty {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := &duty{renewed: sent}
	d.all = append(d.all, of)
	return of
}

// renew takes down that a term was renewed, lose that it was lost, and join that its work has returned.
func (d *duties) renew(of *duty, sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of.renewed = sent
}

func (d *duties) lose(of *duty) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if of.lost.IsZero() {
		of.lost = time.Now()
	}
}

func (d *duties) join(of *duty) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = slices.DeleteFunc(d.all, func(other *duty) bool { return other == of })
}

// check looks at the monotonic clock only: a machine that has slept is given the time to notice.
func (d *duties) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, of := range d.all {
		if since := time.Since(of.lost); !of.lost.IsZero() && since > d.grace {
			return fmt.Errorf("the Lease %s was lost %s ago, and the work under it has not stopped: this process must be replaced", d.lease, since.Round(time.Second))
		}
		if since := time.Since(of.renewed); since > d.leaseDuration+d.grace {
			return fmt.Errorf("the Lease %s was renewed %s ago for the last time, and the work under it has not stopped: this process must be replaced", d.lease, since.Round(time.Second))
		}
	}
	return nil
}

// Name is that of the Check, such as "leader-election-operator".
func (e *Elector) Name() string { return "leader-election-" + e.o.Lease }

// Check fails when this process must be replaced: the work of a term goes on [Options].Grace after the term was lost, or, whatever
// the elector believes, that long after the Lease is over. Replicas that wait, and processes that do not run the elector, are
// well. It looks at no request, which may be nil, and makes none, so it suits a liveness probe. With Name the Elector is what
// k8s.io/apiserver calls a healthz.HealthChecker, like client-go's HealthzAdaptor, which does the latter. It may be called by
// anybody at any time.
func (e *Elector) Check(*http.Request) error { return e.duties.check() }
