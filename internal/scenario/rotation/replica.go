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

// replica is a process of a contestant.
type replica struct {
	cmd     *exec.Cmd
	stdin   io.Closer // the process ends when it is closed
	address string
	errs    output
	reads   sync.WaitGroup
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
func start(ctx context.Context, cmd *exec.Cmd) (*replica, error) {
	r := &replica{cmd: cmd}
	cmd.Stderr = &r.errs
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
	r.stdin = in
	ready := make(chan string, 1)
	r.reads.Go(func() {
		defer close(ready)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if address, ok := strings.CutPrefix(lines.Text(), "ready "); ok && len(ready) == 0 {
				ready <- address
			}
		}
	})
	select {
	case address, ok := <-ready:
		if ok {
			r.address = address
			return r, nil
		}
		err = errors.New("it ended")
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.kill()
	return nil, fmt.Errorf("a replica did not become ready: %w; its last output:\n%s", err, &r.errs)
}

// kill is SIGKILL.
func (r *replica) kill() {
	_ = r.cmd.Process.Signal(os.Kill) // it may have ended
	r.reads.Wait()
	_ = r.cmd.Wait() // it was killed
	_ = r.stdin.Close()
}

// longestStart is how long a replica may take to become ready.
const longestStart = time.Minute
