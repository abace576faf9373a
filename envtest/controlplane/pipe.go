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

// protocol is the version of the pipe's protocol. The parent rejects another one.
const protocol = 1

// Report is the single message of a process to its parent, one line of JSON on standard output.
type Report struct {
	// Address is where the process listens: a URL for etcd, host:port for kube-apiserver.
	Address string `json:"address,omitempty"`
	// Error is why it does not serve.
	Error string `json:"error,omitempty"`
}

type pipe struct {
	in     *bufio.Reader
	out    io.Writer
	report sync.Once
}

func newPipe(in io.Reader, out io.Writer) *pipe {
	return &pipe{in: bufio.NewReader(in), out: out}
}

func (p *pipe) read(into any) error {
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		return errors.New("standard input ended before the configuration; package envtest starts this command, see controlplane help")
	}
	var spoken struct {
		Protocol int `json:"protocol"`
	}
	if err := json.Unmarshal(line, &spoken); err != nil {
		return fmt.Errorf("standard input does not begin with a configuration: %w", err)
	}
	if spoken.Protocol != protocol {
		return fmt.Errorf("this control plane program speaks protocol %d, but the envtest package that started it speaks %d; rebuild it", protocol, spoken.Protocol)
	}
	return json.Unmarshal(line, into)
}

func (p *pipe) serving(address string) { p.send(Report{Address: address}) }

// fail reports err to the parent, unless a report has been sent already.
func (p *pipe) fail(err error) (told bool) { return p.send(Report{Error: err.Error()}) }

func (p *pipe) send(r Report) (sent bool) {
	p.report.Do(func() {
		// If the parent is gone, the end of standard input follows.
		_ = json.NewEncoder(p.out).Encode(r)
		sent = true
	})
	return sent
}

// wait returns when the parent has closed its end or died.
func (p *pipe) wait() { _, _ = io.Copy(io.Discard, p.in) }
