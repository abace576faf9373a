// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a running replica.
type process struct {
	program  string
	identity string // unique for each start
	cmd      *exec.Cmd
	stdin    io.Closer
	errs     tail
	joined   chan struct{} // closed when it has ended and all reports are recorded

	// These are guarded by the fleet's mutex.
	warm, leads, ended bool
}

// programOf returns the program of an identity.
func programOf(identity string) string {
	program, _, _ := strings.Cut(identity, "#")
	return program
}

// start starts a replica.
func (f *fleet) start(program string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f.started++
	p := &process{program: program, identity: fmt.Sprintf("%s#%d", program, f.started), joined: make(chan struct{})}
	line, err := json.Marshal(orders{
		Program: program, Identity: p.identity, Namespace: f.namespace, Host: f.config.Host,
		CAData: f.config.CAData, CertData: f.config.CertData, KeyData: f.config.KeyData,
		Lease: fleetLease, Renew: fleetRenew, Retry: fleetRetry, Unfenced: f.plan.unfenced,
	})
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), asReplica+"=1", "GORACE=halt_on_error=1")
	// If the driver is killed, the kernel wakes and ends a suspended member of the group (POSIX:
	// orphaned process groups).
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.errs
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	f.running.Go(func() { f.listen(p, stdout) })
	f.processes = append(f.processes, p)
	_, err = stdin.Write(append(line, '\n'))
	return p, err
}

// listen records the reports of a process until it has ended.
func (f *fleet) listen(p *process, out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // a kill may truncate the last line
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			_, _ = fmt.Fprintf(&p.errs, "unexpected output %q\n", line)
			continue
		}
		f.change(func() { f.reportedLocked(p, r) })
	}
	_ = p.cmd.Wait() // ProcessState has the result
	f.change(func() {
		p.ended = true
		// A replica whose term was lost exits with 1, and a killed one with -1.
		if code := p.cmd.ProcessState.ExitCode(); code > 1 {
			f.failLocked(fmt.Errorf("%s ended with status %d; the end of its log:\n%s", p.identity, code, &p.errs))
		}
	})
	close(p.joined)
}

func (f *fleet) reportedLocked(p *process, r report) {
	switch r.What {
	case isWarm:
		p.warm = true
	case leads:
		p.leads = true
	case lost:
		p.leads = false
	case reconciled:
		if f.task == r.Key {
			f.doers = append(f.doers, doer{p, time.Unix(0, r.At)})
		}
	}
}

// suspend stops a process, and returns when it has stopped.
func (p *process) suspend() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspending %s: %w", p.identity, err)
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("suspending %s: %w", p.identity, err)
		case status.Stopped():
			return nil
		default: // listen does not receive this status
			return fmt.Errorf("suspending %s: it has ended with status %d", p.identity, status.ExitStatus())
		}
	}
}

// resume continues a suspended process. It has no effect on another one.
func (p *process) resume() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // fails if it has ended
}

// kill ends a process and waits for it.
func (p *process) kill() {
	p.resume()
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.stdin.Close()
	<-p.joined
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = append([]byte(nil), t.text[max(0, len(t.text)-8000):]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
