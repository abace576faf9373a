// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Troubles of a leader.
const (
	kill    = "kill"    // SIGKILL
	suspend = "suspend" // SIGSTOP, and SIGCONT when another one leads
	stop    = "stop"    // SIGTERM
	replace = "replace" // a rolling update: each replica becomes one of the next program
)

var (
	programs = []string{programTheirs, programBridge, programNative}
	troubles = []string{kill, suspend, stop, replace}
)

// combination is a kind of round. The successor is the program that takes over, or "" if two
// replicas compete.
type combination struct{ leader, trouble, successor string }

// result is the result of one round.
type result struct {
	program, trouble string
	next             string        // the program that took over
	gap              time.Duration // until the next leader reconciled a new object
}

// play plays one round, of the combination that was played least.
func (f *fleet) play(ctx context.Context, n int) error {
	leader, err := f.settle(ctx)
	if err != nil {
		return fmt.Errorf("before its trouble: %w", err)
	}
	c := f.plan.choose(leader.program)
	var other *process
	for _, p := range f.members {
		if c.successor != "" && p != leader && p.program != c.successor {
			other = p
		}
	}
	if other != nil {
		if err := other.suspend(); err != nil {
			return err
		}
		defer other.resume()
	}
	f.change(func() { f.task, f.doers = nameOf(task, n), nil })
	var next doer
	if c.trouble == replace {
		next, err = f.roll(ctx, leader)
	} else {
		next, err = f.harm(ctx, leader, c.trouble)
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", c.trouble, leader.identity, err)
	}
	f.results = append(f.results, result{leader.program, c.trouble, next.program, next.at.Sub(f.began)})
	return nil
}

// plan chooses what rounds are. Several fleets share it.
type plan struct {
	troubles []string
	unfenced bool

	mu     sync.Mutex // guards the fields below
	left   int        // rounds
	counts map[combination]int
}

// round reports whether there is another round, and returns how many follow.
func (p *plan) round() (n int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	return p.left, p.left >= 0
}

// choose returns the combination that was chosen least.
func (p *plan) choose(program string) (least combination) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, successor := range append([]string{""}, programs...) {
		for _, trouble := range p.troubles {
			c := combination{program, trouble, successor}
			if successor == program || successor != "" && trouble == replace {
				continue
			}
			if least.trouble == "" || p.counts[c] < p.counts[least] {
				least = c
			}
		}
	}
	p.counts[least]++
	return least
}

// harm makes trouble for the leader, and returns when it has ended, or has lost its term.
func (f *fleet) harm(ctx context.Context, leader *process, trouble string) (doer, error) {
	f.began = time.Now()
	if err := f.trouble(leader, trouble); err != nil {
		return doer{}, err
	}
	next, err := f.handOver(ctx, leader)
	f.change(func() { f.mishaps[len(f.mishaps)-1].over = time.Now() })
	leader.resume()
	if err != nil {
		return next, err
	}
	// A leader that wakes has work as long as it believes that it leads.
	for n := 0; ; n++ {
		done := f.within(ctx, 50*time.Millisecond, func() bool { return leader.ended || trouble == suspend && !leader.leads })
		if done {
			return next, nil
		}
		if time.Since(f.began) > patience {
			return next, fmt.Errorf("it has not ended in %s", patience)
		}
		if err := f.create(ctx, fmt.Sprintf("%s-%d", f.task, n)); err != nil {
			return next, err
		}
	}
}

// trouble records the trouble of a process, and begins it.
func (f *fleet) trouble(p *process, trouble string) error {
	f.change(func() {
		f.mishaps = append(f.mishaps, mishap{identity: p.identity, trouble: trouble, version: f.version})
	})
	switch trouble {
	case kill:
		return p.cmd.Process.Kill()
	case suspend:
		return p.suspend()
	default:
		return p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// roll replaces each replica: it starts one of the next program, and stops the old one. When the
// leader's turn comes differs from round to round.
func (f *fleet) roll(ctx context.Context, leader *process) (next doer, err error) {
	turn := rand.N(len(f.members))
	at := slices.Index(f.members, leader)
	f.members[at], f.members[turn] = f.members[turn], f.members[at]
	for i, old := range f.members {
		made, err := f.start(programs[(slices.Index(programs, old.program)+1)%len(programs)])
		if err != nil {
			return next, err
		}
		if err := f.wait(ctx, made.identity+" to be warm", func() bool { return made.warm || made.ended }); err != nil {
			return next, err
		}
		if old == leader {
			f.began = time.Now()
		}
		if err := f.trouble(old, replace); err != nil {
			return next, err
		}
		if old == leader {
			if next, err = f.handOver(ctx, leader); err != nil {
				return next, err
			}
		}
		if err := f.wait(ctx, old.identity+" to end", func() bool { return old.ended }); err != nil {
			return next, err
		}
		f.members[i] = made
	}
	return next, nil
}

// handOver creates a task and waits until a replica other than the previous leader has begun it and
// leads. On a busy machine, the next leader may lose its Lease and end, too.
func (f *fleet) handOver(ctx context.Context, was *process) (next doer, err error) {
	if err := f.create(ctx, f.task); err != nil {
		return next, err
	}
	leads := func(p *process) bool { return p != was && p.leads && !p.ended }
	for began, done := time.Now(), false; !done; {
		if err := f.restart(was); err != nil {
			return next, err
		}
		err := f.wait(ctx, "another replica to lead, and to do "+f.task, func() bool {
			i := slices.IndexFunc(f.doers, func(d doer) bool { return d.process != was })
			if i >= 0 {
				next = f.doers[i]
			}
			done = i >= 0 && slices.ContainsFunc(f.processes, leads)
			return done || slices.ContainsFunc(f.members, func(p *process) bool { return p != was && p.ended })
		})
		if err != nil {
			return next, err
		}
		if time.Since(began) > patience {
			return next, fmt.Errorf("no next leader keeps its Lease for %s", patience)
		}
	}
	return next, nil
}

func (f *fleet) create(ctx context.Context, name string) error {
	_, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(ctx, taskObject(name), metav1.CreateOptions{})
	return err
}

func taskObject(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: taskLabels},
		Data:       map[string]string{"made": strconv.FormatInt(time.Now().UnixNano(), 10)},
	}
}
