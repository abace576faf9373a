// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"sync"
)

// buffers are reused for the bodies of requests and answers.
type buffers struct{ pool sync.Pool } // of *[]byte

// bufferSize is how large a buffer is at first, and how much of a request's body is read.
const bufferSize = 16 << 10

// get returns an empty buffer of at least bufferSize.
func (b *buffers) get() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, bufferSize)
	return &buf
}

func (b *buffers) put(buf *[]byte) {
	if cap(*buf) <= 256<<10 { // the rare large one is not worth its memory
		*buf = (*buf)[:0]
		b.pool.Put(buf)
	}
}

// sent shows f the beginning of a request's body, if the request can return it once more.
func (b *buffers) sent(getBody func() (io.ReadCloser, error), f func([]byte)) {
	if getBody == nil {
		return
	}
	body, err := getBody()
	if err != nil {
		return
	}
	defer body.Close()
	buf := b.get()
	defer b.put(buf)
	all := (*buf)[:bufferSize]
	n := 0
	for err == nil && n < len(all) {
		var more int
		more, err = body.Read(all[n:])
		n += more
	}
	f(all[:n])
}
