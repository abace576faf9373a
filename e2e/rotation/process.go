// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a replica of a contestant.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer // the process ends when it is closed
	address string
	errs    output
	reads   sync.WaitGroup
	ended   chan struct{} // closed when the process ends

	mu   sync.Mutex    // guards ca
	ca   string        // the last one that the process reported
	news chan struct{} // has an element after a report
}

// output keeps the end of what a process writes.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if over := len(o.text) - 8<<10; over > 0 {
		o.text = o.text[over:]
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// start starts a process and waits until it prints its address.
func start(ctx context.Context, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, news: make(chan struct{}, 1), ended: make(chan struct{})}
	cmd.Stderr = &p.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin = in
	ready := make(chan string, 1)
	p.reads.Go(func() {
		p.read(out, ready)
		close(p.ended)
	})
	select {
	case address, ok := <-ready:
		if ok {
			p.address = address
			return p, nil
		}
		err = errors.New("it ended")
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = p.kill()
	return nil, fmt.Errorf("a replica did not become ready: %w; its last output:\n%s", err, &p.errs)
}

// read reads what the process prints: "ready HOST:PORT" once, and "ca NAME" for each CA.
func (p *process) read(out io.Reader, ready chan<- string) {
	defer close(ready)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "ready "); ok && len(ready) == 0 {
			ready <- address
		}
		if ca, ok := strings.CutPrefix(lines.Text(), "ca "); ok {
			p.mu.Lock()
			p.ca = ca
			p.mu.Unlock()
			select {
			case p.news <- struct{}{}:
			default:
			}
		}
	}
}

// uses waits until the process reports another CA than old, and returns it.
func (p *process) uses(ctx context.Context, old string) (string, error) {
	for {
		p.mu.Lock()
		ca := p.ca
		p.mu.Unlock()
		if ca != old {
			return ca, nil
		}
		select {
		case <-p.news:
		case <-p.ended:
			return "", fmt.Errorf("a replica ended by itself; its last output:\n%s", &p.errs)
		case <-ctx.Done():
			return "", fmt.Errorf("a replica uses no other CA than %q: %w; its last output:\n%s", old, ctx.Err(), &p.errs)
		}
	}
}

// kill is SIGKILL. It returns an error if the process ended before.
func (p *process) kill() (err error) {
	select {
	case <-p.ended:
		err = fmt.Errorf("a replica ended by itself; its last output:\n%s", &p.errs)
	default:
	}
	_ = p.cmd.Process.Signal(os.Kill) // it may have ended
	p.reads.Wait()
	_ = p.cmd.Wait() // it was killed
	_ = p.stdin.Close()
	return err
}

// longestStart is how long a replica may take to become ready.
const longestStart = 2 * time.Minute
