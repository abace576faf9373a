// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// protocol is the version of what goes over the pipe. The parent refuses a program that speaks another.
const protocol = 1

// Report is the one thing that a process tells its parent, as a line of JSON on standard output.
type Report struct {
	// Address is where the process listens: a URL for etcd, host:port for kube-apiserver.
	Address string `json:"address,omitempty"`
	// Error is why it does not.
	Error string `json:"error,omitempty"`
}

// pipe is the connection to the parent.
type pipe struct {
	in     *bufio.Reader
	out    io.Writer
	report sync.Once
}

func newPipe(in io.Reader, out io.Writer) *pipe {
	return &pipe{in: bufio.NewReader(in), out: out}
}

// read decodes the configuration, which is the first line.
func (p *pipe) read(into any) error {
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		return errors.New("standard input ended before the configuration: this command is started by package envtest; see controlplane help")
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("standard input does not begin with a configuration of protocol %d: %w", protocol, err)
	}
	return nil
}

// serving tells the parent where this process listens.
func (p *pipe) serving(address string) { p.send(Report{Address: address}) }

// fail tells the parent why this process ends.
func (p *pipe) fail(err error) { p.send(Report{Error: err.Error()}) }

func (p *pipe) send(r Report) {
	p.report.Do(func() {
		// A parent that is gone cannot be told so, and the end of standard input is on its way.
		_ = json.NewEncoder(p.out).Encode(r)
	})
}

// wait returns when the parent has closed its end, or has died.
func (p *pipe) wait() { _, _ = io.Copy(io.Discard, p.in) }
