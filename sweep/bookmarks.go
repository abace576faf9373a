// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
)

// withoutBookmarks sends a watch, and drops all bookmarks but the end of a streamed list.
func withoutBookmarks(h *http.Request, next http.RoundTripper) (*http.Response, error) {
	h = h.Clone(h.Context())
	h.Header.Set("Accept", "application/json")
	resp, err := next.RoundTrip(h)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	resp.Body = &bookmarkFilter{from: bufio.NewReader(resp.Body), closer: resp.Body}
	return resp, nil
}

// bookmarkFilter reads a watch in JSON, an event in each line.
type bookmarkFilter struct {
	from   *bufio.Reader
	closer io.Closer
	rest   []byte
	err    error
}

func (f *bookmarkFilter) Read(p []byte) (int, error) {
	for len(f.rest) == 0 && f.err == nil {
		f.rest, f.err = f.from.ReadBytes('\n')
		if bytes.Contains(f.rest, []byte(`"BOOKMARK"`)) && !bytes.Contains(f.rest, []byte("k8s.io/initial-events-end")) {
			f.rest = nil
		}
	}
	if len(f.rest) == 0 {
		return 0, f.err
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *bookmarkFilter) Close() error { return f.closer.Close() }
