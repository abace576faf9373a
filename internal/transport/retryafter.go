// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

const retryAfter = "Retry-After"

// longestPause is the longest Retry-After, in seconds, for which client-go may wait within a
// request. It then repeats the request, up to ten times. Flow control usually asks for one second.
const longestPause = 1

// impatient makes a request fail whose answer asks for a longer pause than longestPause: client-go
// would wait for it in the goroutine of the caller, such as a worker. It waits only for a number of
// seconds, so the header names the same time as a date until the caller begins to read the body.
// client-go has decided by then, and puts the seconds into its error.
func impatient(resp *http.Response) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return
	}
	asked := resp.Header.Get(retryAfter)
	if asked == "" {
		return
	}
	now := time.Now()
	seconds, err := strconv.Atoi(asked)
	switch date, notDate := http.ParseTime(asked); {
	case notDate == nil:
		seconds = int(min(math.Ceil(date.Sub(now).Seconds()), math.MaxInt32))
		if seconds <= 0 {
			return
		}
	case err == nil && seconds >= 0 && seconds <= longestPause:
		return
	case err == nil && seconds < 0:
		resp.Header.Del(retryAfter) // client-go would repeat the request at once, ten times
		return
	case err != nil && (!errors.Is(err, strconv.ErrRange) || seconds <= 0):
		return // client-go ignores it
	default:
		seconds = min(seconds, math.MaxInt32) // as in a Status
		resp.Header.Set(retryAfter, now.Add(time.Duration(seconds)*time.Second).UTC().Format(http.TimeFormat))
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	resp.Body = &refusal{ReadCloser: resp.Body, header: resp.Header, seconds: strconv.Itoa(seconds)}
}

// refusal is the body of an answer that asks for a long pause.
type refusal struct {
	io.ReadCloser

	header  http.Header
	seconds string // of the pause; empty when the header has them
}

func (r *refusal) Read(p []byte) (int, error) {
	if r.seconds != "" {
		r.header.Set(retryAfter, r.seconds)
		r.seconds = ""
	}
	return r.ReadCloser.Read(p)
}
