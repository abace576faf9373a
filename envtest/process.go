// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// report is the only message of a process. pipe.go in the module controlplane sends it.
type report struct {
	Address string `json:"address"`
	Error   string `json:"error"`
}

const protocol = 1

// process is a child that runs until its standard input closes, because we close it or end.
type process struct {
	name     string
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	tail     *tail
	reported chan report   // at most one
	probe    func() error  // for a process without reports: returns nil when it serves
	address  string        // set when it is ready, or before
	done     chan struct{} // the process has ended
	err      error         // written before done is closed
	up       atomic.Bool   // has been ready
	stopping atomic.Bool   // its end is requested, or already reported
}

// startProcess passes the lock of d to the process as file 3. The caller must stop the process.
func startProcess(name string, cmd *exec.Cmd, input []byte, d *runDir, o Options) (*process, error) {
	p := &process{
		name:     name,
		cmd:      cmd,
		tail:     &tail{prefix: name + ": ", out: o.Output},
		reported: make(chan report, 1),
		done:     make(chan struct{}),
	}
	cmd.Stdout = &reportReader{found: p.reported}
	cmd.Stderr = p.tail
	cmd.ExtraFiles = []*os.File{d.lock}
	cmd.Env = environment()
	cmd.WaitDelay = o.StopTimeout
	isolate(cmd)
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("envtest: cannot start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("envtest: cannot start %s: %w", name, err)
	}
	go p.wait(o.Progress)
	_, _ = p.stdin.Write(input) // if it has ended already, ready returns the reason
	return p, nil
}

func (p *process) wait(progress io.Writer) {
	defer close(p.done) // after the line: a Stop that finds the end would suppress it
	p.err = p.cmd.Wait()
	if p.up.Load() && !p.stopping.Load() {
		fmt.Fprintf(progress, "setpoint: %v\n", p.ended())
	}
}

func (p *process) ready(ctx context.Context) (string, error) {
	if p.probe != nil {
		return p.address, p.probed(ctx)
	}
	select {
	case r := <-p.reported:
		return p.take(r)
	case <-ctx.Done():
		return "", fmt.Errorf("envtest: %s is not ready: %w%s", p.name, context.Cause(ctx), p.lastLines())
	case <-p.done:
	}
	select {
	case r := <-p.reported:
		return p.take(r)
	default:
		p.stopping.Store(true)
		return "", p.ended()
	}
}

func (p *process) probed(ctx context.Context) error {
	const between = 20 * time.Millisecond
	timer := time.NewTimer(between)
	defer timer.Stop()
	for {
		err := p.probe()
		if err == nil {
			p.up.Store(true)
			return nil
		}
		timer.Reset(between)
		select {
		case <-timer.C:
		case <-p.done:
			p.stopping.Store(true)
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("envtest: %s is not ready: %w: %w%s", p.name, context.Cause(ctx), err, p.lastLines())
		}
	}
}

func (p *process) take(r report) (string, error) {
	if r.Error != "" {
		p.stopping.Store(true)
		return "", fmt.Errorf("envtest: %s does not start: %s%s", p.name, r.Error, p.lastLines())
	}
	p.address = r.Address
	p.up.Store(true)
	return r.Address, nil
}

func (p *process) ended() error {
	how := "it exited with status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("envtest: %s (%s) ended by itself: %s%s", p.name, p.cmd.Path, how, p.lastLines())
}

func (p *process) lastLines() string {
	if last := p.tail.String(); last != "" {
		return "\nits last lines:\n  " + strings.ReplaceAll(last, "\n", "\n  ")
	}
	return "; it logged nothing"
}

// stop returns an error if the process had ended before or had to be killed.
func (p *process) stop(timeout time.Duration) error {
	if over, err := p.beginStop(); over {
		return err
	}
	p.stdin.Close()
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		kill(p.cmd.Process)
		<-p.done
		return fmt.Errorf("envtest: %s did not end within %v and was killed%s", p.name, timeout, p.lastLines())
	}
}

// kill returns an error if the process had ended before.
func (p *process) kill() error {
	if over, err := p.beginStop(); over {
		return err
	}
	kill(p.cmd.Process)
	<-p.done
	p.stdin.Close()
	return nil
}

// beginStop reports whether the process has ended before, with an error at the first call.
func (p *process) beginStop() (over bool, err error) {
	known := p.stopping.Swap(true)
	select {
	case <-p.done:
		if !known {
			err = p.ended()
		}
		return true, err
	default:
		return false, nil
	}
}

// environment leaves out variables that change how Kubernetes behaves: tests set them for clients.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KUBE") || strings.HasPrefix(v, "ETCD_") || strings.HasPrefix(v, "GOCOVERDIR=")
	})
}

type reportReader struct {
	found chan<- report // buffered
	line  []byte
	over  bool
}

func (r *reportReader) Write(p []byte) (int, error) {
	if r.over {
		return len(p), nil
	}
	line, _, ended := bytes.Cut(p, []byte("\n"))
	r.line = append(r.line, line...)
	if ended || len(r.line) > 1<<20 {
		r.over = true
		var got report
		if err := json.Unmarshal(r.line, &got); err != nil {
			got.Error = fmt.Sprintf("it is not the control plane program, or one for another protocol than %d", protocol)
		}
		r.found <- got
	}
	return len(p), nil
}
