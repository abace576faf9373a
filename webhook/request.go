// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"
)

const (
	// maxBody is the limit of a request's body, in bytes. The API server accepts objects of 3 MB.
	// An admission has at most two of them. A conversion has one, also if it is for a list.
	maxBody = 7 << 20
	// trusted is the number of bytes that are allocated because a header announces them.
	trusted = 1 << 20

	admissionTimeout  = 10 * time.Second // of a request that has none
	conversionTimeout = 30 * time.Second // the API server's, which sends none
	maxTimeout        = 30 * time.Second // the API server's limit
)

type endpoint struct {
	path, name string
	conversion bool
	// answer handles a body. After an error, the answer is a failure: see failure.
	answer func(ctx context.Context, body []byte) (*reply, error)
}

// reply is an answer with status 200.
type reply struct {
	text    []byte // a review in JSON
	allowed bool
	reason  string // of a rejection
}

// encode writes JSON without the escapes for HTML, which take six bytes for one.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// failure is an error with an HTTP status. Errors of other types have status 500.
type failure struct {
	code int
	text string
}

func failuref(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func (f *failure) Error() string { return f.text }

// checkBody returns the most bytes that the body may have.
func checkBody(r *http.Request) (size int64, err error) {
	if r.Method != http.MethodPost {
		return 0, failuref(http.StatusMethodNotAllowed, "the method is %s; the API server sends a review with POST", r.Method)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return 0, failuref(http.StatusUnsupportedMediaType, "the content type is %q; send a review as application/json", r.Header.Get("Content-Type"))
	}
	switch {
	case r.ContentLength > maxBody:
		return 0, failuref(http.StatusRequestEntityTooLarge, "the body has %d bytes; the limit is %d", r.ContentLength, maxBody)
	case r.ContentLength < 0:
		return maxBody, nil
	}
	return r.ContentLength, nil
}

func readBody(r *http.Request) ([]byte, error) {
	buffer := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), trusted)+bytes.MinRead))
	_, err := buffer.ReadFrom(io.LimitReader(r.Body, trusted))
	if err == nil && buffer.Len() == trusted {
		buffer.Grow(int(max(r.ContentLength-trusted, 0)) + bytes.MinRead) // once, not by doubling
		_, err = buffer.ReadFrom(io.LimitReader(r.Body, maxBody+1-trusted))
	}
	switch {
	case err != nil:
		return nil, failuref(http.StatusBadRequest, "the body cannot be read: %v", err)
	case buffer.Len() > maxBody:
		return nil, failuref(http.StatusRequestEntityTooLarge, "the body has more than %d bytes, the limit", maxBody)
	case buffer.Len() == 0:
		return nil, failuref(http.StatusBadRequest, "the body is empty; send a review")
	case !utf8.Valid(buffer.Bytes()): // a decoder writes three bytes for a wrong one
		return nil, failuref(http.StatusBadRequest, "the body is not in UTF-8")
	}
	return buffer.Bytes(), nil
}

func timeoutOf(r *http.Request, e *endpoint) (time.Duration, error) {
	text := r.URL.Query().Get("timeout")
	switch {
	case text != "":
	case e.conversion:
		return conversionTimeout, nil
	default:
		return admissionTimeout, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout <= 0 {
		return 0, failuref(http.StatusBadRequest, "the timeout in the URL is %q; send a duration such as 10s", text)
	}
	return min(timeout, maxTimeout), nil
}

// reserve is the part of a timeout in which an answer travels. The context of a function ends
// before it.
func reserve(timeout time.Duration) time.Duration {
	return min(max(timeout/10, 500*time.Millisecond), timeout/2)
}

func codeOf(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	return http.StatusInternalServerError
}
