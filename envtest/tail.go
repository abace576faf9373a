// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

const tailLines = 20

// maxLine is in bytes.
const maxLine = 4096

type tail struct {
	prefix string
	out    io.Writer
	skips  func(line string) bool // or nil

	mu      sync.Mutex // guards what follows, and the order of lines in out
	lines   []string
	partial []byte
}

// Write never fails: a logging problem must not end the process.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if room := maxLine - len(t.partial); len(line) > room {
			line = line[:room]
		}
		t.partial = append(t.partial, line...)
		if !ended {
			break
		}
		t.endLineLocked()
		rest = after
	}
	return len(p), nil
}

func (t *tail) endLineLocked() {
	line := string(t.partial)
	t.partial = t.partial[:0]
	if t.skips != nil && t.skips(line) {
		return
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
	if t.out != nil {
		_, _ = io.WriteString(t.out, t.prefix+line+"\n")
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(t.partial))
	}
	return strings.Join(lines, "\n")
}
