// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// replica is a member of a group: a process, and after its end the next one.
type replica struct {
	name string       // a, b or c
	cfg  *rest.Config // through the network
	runs int

	*process
}

// process is a running replica.
type process struct {
	identity string // unique for each start
	cmd      *exec.Cmd
	stdin    io.Closer
	errs     tail
	joined   chan struct{} // closed when it has ended and all reports are recorded

	// These are guarded by the group's mutex.
	warm    bool
	leads   bool
	follows string
	ended   bool
	err     error
}

// start starts a process for a replica.
func (g *group) start(r *replica) error {
	program, err := g.programs.Executable()
	if err != nil {
		return err
	}
	r.runs++
	o := orders{
		Host: r.cfg.Host, Token: r.cfg.BearerToken, CA: r.cfg.CAData, HTTP1: g.http1, Namespace: g.namespace,
		Identity: fmt.Sprintf("%s%s.%d", g.prefix, r.name, r.runs), Lease: g.lease, Objects: g.objects, Pace: g.pace, Unfenced: g.unfenced,
	}
	if g.http1 {
		o.Linger = g.linger
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	cmd := exec.Command(program) //nolint:gosec // see testkit.Replicas
	cmd.Env = append(os.Environ(), asReplica+"=1")
	// The child has its own process group, so that a Ctrl-C at a terminal reaches only the driver.
	// If the driver is killed, the kernel wakes and ends a suspended member (POSIX: orphaned
	// process groups).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &process{identity: o.Identity, cmd: cmd, joined: make(chan struct{})}
	cmd.Stderr = &p.errs
	if g.verbose {
		cmd.Stderr = g.err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.mu.Lock()
	r.process = p
	g.mu.Unlock()
	g.running.Go(func() { g.listen(p, stdout) })
	_, err = stdin.Write(append(line, '\n'))
	return err
}

// listen records the reports of a process until it has ended.
func (g *group) listen(p *process, out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // a kill may truncate the last line
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			fmt.Fprintf(g.err, "ha: %s: unexpected output %q\n", p.identity, line)
			continue
		}
		g.reported(p, r)
	}
	err := p.cmd.Wait()
	g.mu.Lock()
	p.ended, p.err = true, err
	g.newsLocked()
	g.mu.Unlock()
	close(p.joined)
}

// reported records one report.
func (g *group) reported(p *process, r report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch r.What {
	case isWarm:
		p.warm = true
	case leads:
		p.leads, p.follows = true, p.identity
	case follows:
		p.leads, p.follows = false, r.Who
	case lost:
		p.leads = false
	case reconciled:
		if g.task == r.Key {
			g.doers = append(g.doers, doer{p.identity, time.Unix(0, r.At)})
		}
	default:
		g.ledger.reported(p.identity, r)
		return // no waiter depends on these
	}
	g.newsLocked()
}

// end kills a process and waits for it.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a suspended process cannot end
	_ = p.cmd.Process.Kill()
	_ = p.stdin.Close()
	<-p.joined
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// tailSize is the size of a tail in bytes: a replica's last log lines, possibly with a stack.
const tailSize = 8000

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = append([]byte(nil), t.text[max(0, len(t.text)-tailSize):]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
