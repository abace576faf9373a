// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// fleet is the replicas of one operator, each a process.
type fleet struct {
	contestant string
	namespace  string
	cfg        []*rest.Config // of each replica
	widgets    bool
	verbose    bool
	started    int

	mu       sync.Mutex // guards the fields below and the state of replicas
	news     chan struct{}
	replicas []*replicaProcess
}

// replicaProcess is one replica of a fleet.
type replicaProcess struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	joined chan struct{}
	at     time.Time // of its end

	warm, leads, ended bool
	reconciled         map[string]time.Time // the first time, by object
	refused            int                  // writes
}

func newFleet(contestant, namespace string, cfg ...*rest.Config) *fleet {
	return &fleet{contestant: contestant, namespace: namespace, cfg: cfg, news: make(chan struct{}), replicas: make([]*replicaProcess, len(cfg))}
}

// start starts replica i.
func (f *fleet) start(i int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.started++
	cfg := f.cfg[i]
	line, err := json.Marshal(replicaOrders{
		Contestant: f.contestant, Host: cfg.Host, Token: cfg.BearerToken, CA: cfg.CAData, Namespace: f.namespace,
		Identity: fmt.Sprintf("%s-%d", f.contestant, f.started), Widgets: f.widgets, Verbose: f.verbose,
	})
	if err != nil {
		return err
	}
	p := &replicaProcess{cmd: exec.Command(self), joined: make(chan struct{}), reconciled: map[string]time.Time{}}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asReplica+"=1"), os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.stdin = stdin
	f.mu.Lock()
	f.replicas[i] = p
	f.mu.Unlock()
	go f.listen(p, stdout) // stop receives from joined
	_, err = stdin.Write(append(line, '\n'))
	return err
}

func (f *fleet) listen(p *replicaProcess, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what, name string
		var at int64
		if n, _ := fmt.Sscan(lines.Text(), &what, &at, &name); n < 2 {
			continue
		}
		f.mu.Lock()
		switch what {
		case "warm":
			p.warm = true
		case "leads":
			p.leads = true
		case "refused":
			p.refused++
		case "reconcile":
			if _, before := p.reconciled[name]; !before {
				p.reconciled[name] = time.Unix(0, at)
			}
		}
		f.newsLocked()
		f.mu.Unlock()
	}
	_ = p.cmd.Wait()
	f.mu.Lock()
	p.ended, p.at = true, time.Now()
	f.newsLocked()
	f.mu.Unlock()
	close(p.joined)
}

func (f *fleet) newsLocked() {
	close(f.news)
	f.news = make(chan struct{})
}

// wait returns when readyLocked returns true.
func (f *fleet) wait(ctx context.Context, what string, readyLocked func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("%s: waited 2 minutes for %s", f.contestant, what))
	defer cancel()
	for {
		f.mu.Lock()
		ready, news := readyLocked(), f.news
		f.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle starts missing replicas, waits until all are warm and one leads, and returns the leader.
func (f *fleet) settle(ctx context.Context) (leader *replicaProcess, err error) {
	for i, p := range f.replicas {
		if p == nil || p.hasEnded(f) {
			if err := f.start(i); err != nil {
				return nil, err
			}
		}
	}
	err = f.wait(ctx, "all replicas to be warm, and one to lead", func() bool {
		leader = nil
		warm := true
		for _, p := range f.replicas {
			warm = warm && p.warm
			if p.leads && !p.ended {
				leader = p
			}
		}
		return warm && leader != nil
	})
	return leader, err
}

func (p *replicaProcess) hasEnded(f *fleet) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.ended
}

// next waits until a replica other than the previous leader has reconciled an object, and returns
// the time.
func (f *fleet) next(ctx context.Context, was *replicaProcess, name string) (at time.Time, err error) {
	err = f.wait(ctx, "another leader to reconcile "+name, func() bool {
		for _, p := range f.replicas {
			if t, ok := p.reconciled[name]; ok && p != was {
				at = t
				return true
			}
		}
		return false
	})
	return at, err
}

func (f *fleet) stop() {
	for _, p := range f.replicas {
		if p == nil {
			continue
		}
		_ = p.cmd.Process.Kill()
		_ = p.stdin.Close()
		<-p.joined
	}
}
