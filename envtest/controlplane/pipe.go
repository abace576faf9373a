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
	var spoken struct {
		Protocol int `json:"protocol"`
	}
	if err := json.Unmarshal(line, &spoken); err != nil {
		return fmt.Errorf("standard input does not begin with a configuration: %w", err)
	}
	if spoken.Protocol != protocol {
		return fmt.Errorf("this control plane program speaks protocol %d, but the envtest package that started it %d: build it again", protocol, spoken.Protocol)
	}
	return json.Unmarshal(line, into)
}

// serving tells the parent where this process listens.
func (p *pipe) serving(address string) { p.send(Report{Address: address}) }

// fail tells the parent why this process ends, unless it has been told already that the process serves.
func (p *pipe) fail(err error) (told bool) { return p.send(Report{Error: err.Error()}) }

func (p *pipe) send(r Report) (sent bool) {
	p.report.Do(func() {
		// A parent that is gone cannot be told so, and the end of standard input is on its way.
		_ = json.NewEncoder(p.out).Encode(r)
		sent = true
	})
	return sent
}

// wait returns when the parent has closed its end, or has died.
func (p *pipe) wait() { _, _ = io.Copy(io.Discard, p.in) }
