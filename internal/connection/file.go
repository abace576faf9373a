// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// readEvery is the age at which a request makes a file be read without an error, as in client-go.
const readEvery = time.Minute

// file is a file that others replace. It is safe for concurrent use.
type file struct {
	path string
	read atomic.Int64 // when, in nanoseconds of Unix time

	mu   sync.Mutex // guards data, and is held while the file is read: once for all that wait
	data []byte
}

// newFile returns nil for no path.
func newFile(path string) *file {
	if path == "" {
		return nil
	}
	return &file{path: path}
}

// readAfter reports whether the file was read after a time.
func (f *file) readAfter(since time.Time) bool { return f.read.Load() > since.UnixNano() }

// load returns the content. It reads the file unless it was read after since.
func (f *file) load(since time.Time) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data != nil && f.readAfter(since) {
		return f.data, nil
	}
	f.read.Store(time.Now().UnixNano())
	data, err := os.ReadFile(f.path)
	if err == nil && len(data) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return nil, err
	}
	f.data = data
	return data, nil
}
