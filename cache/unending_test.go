// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// withoutEnd lets the API server stream initial lists, but drops the bookmark at the end.
func withoutEnd(h *http.Request, next http.RoundTripper) (*http.Response, error) {
	h.Header.Set("Accept", "application/json")
	answer, err := next.RoundTrip(h)
	if err != nil || h.URL.Query().Get("sendInitialEvents") == "" {
		return answer, err
	}
	body := answer.Body
	reader, writer := io.Pipe()
	answer.Body = &filtered{reader, body}
	go func() { // ends with the body
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadString('\n')
			if !strings.Contains(line, "initial-events-end") && line != "" {
				_, _ = writer.Write([]byte(line)) // fails only if it is closed
			}
			if err != nil {
				writer.CloseWithError(err)
				return
			}
		}
	}()
	return answer, nil
}

type filtered struct {
	*io.PipeReader
	body io.Closer
}

func (f *filtered) Close() error {
	_ = f.PipeReader.Close() // always nil
	return f.body.Close()
}

// streamed answers streamed lists with lines that come one after another. It then keeps the stream
// open.
func streamed(lines func(yield func(pause time.Duration, line string) bool)) func(*http.Request, http.RoundTripper) (*http.Response, error) {
	return func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
		h.Header.Set("Accept", "application/json")
		if h.URL.Query().Get("sendInitialEvents") == "" {
			return next.RoundTrip(h)
		}
		reader, writer := io.Pipe()
		ctx, cancel := context.WithCancel(h.Context())
		go func() { // ends with the body
			for pause, line := range lines {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
				if _, err := io.WriteString(writer, line+"\n"); err != nil || ctx.Err() != nil {
					break
				}
			}
			<-ctx.Done()
			writer.CloseWithError(ctx.Err())
		}()
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: h,
			Body: &filtered{reader, closer(cancel)}, ContentLength: -1,
		}, nil
	}
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

func addedLine(name string, version int) string {
	return eventLine("ADDED", name, version)
}

func eventLine(event, name string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":%q,"resourceVersion":"%d"}}}`,
		event, name, name, version)
}

func endLine(version int) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"%d",`+
		`"annotations":{"k8s.io/initial-events-end":"true"}}}}`, version)
}

// TestS4_AStreamedListThatNeverEnds: if the API server goes on with events, but never announces the
// end of a streamed initial list, the informer reports it once and lists in pages, also the next
// time.
func TestS4_AStreamedListThatNeverEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request, http.RoundTripper) (*http.Response, error)
		busy   func(api *sim.Server, i int)
		most   time.Duration
	}{
		"updates": {change: withoutEnd, busy: func(api *sim.Server, i int) {
			api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint(i)))
		}, most: 32 * time.Second},
		"creations": {change: withoutEnd, busy: func(api *sim.Server, i int) {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("new-", i)))
		}, most: 62 * time.Second},
		"deletions": {change: withoutEnd, busy: func(api *sim.Server, i int) {
			api.Remove(sim.ConfigMaps, "default", fmt.Sprint("old-", i))
		}, most: 32 * time.Second},
		"bookmarks": {change: streamed(func(yield func(time.Duration, string) bool) {
			for i := 1; yield(time.Second, fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"%d"}}}`, i)); i++ {
			}
		}), most: 32 * time.Second},
		"the same list again": {change: streamed(func(yield func(time.Duration, string) bool) {
			for yield(time.Second, addedLine("old-1", 2)) && yield(time.Second, addedLine("old-2", 3)) {
			}
		}), most: 64 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				for i := range 200 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("old-", i)))
				}
				api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Change: c.change})
				all, told := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](all)
				defer testkit.Start(t, all.Run)()
				synced := func() (took time.Duration) {
					for i := range 120 {
						if synctest.Wait(); maps.Stale() == nil {
							return took
						}
						if c.busy != nil {
							c.busy(api, i)
						}
						time.Sleep(time.Second)
						took += time.Second
					}
					t.Fatalf("after %s: %s", took, maps.State())
					return took
				}
				testkit.AtMost(t, synced(), c.most)
				testkit.Len(t, testkit.Must(maps.List(t.Context(), cache.ListOptions{})), api.Stored(sim.ConfigMaps))
				if reason := told.reasons(); len(reason) != 1 || !strings.Contains(reason[0], "has not announced its end") {
					t.Errorf("the hook was told %q", reason)
				}

				api.Expire()
				api.CutWatches() // the next watch is too old
				api.Put(sim.ConfigMaps, testkit.ConfigMap("late"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				testkit.NoError(t, testkit.Err(maps.Get(t.Context(), testkit.Key("late"))), "after another list")
				testkit.Equal(t, maps.Stale(), nil, "after another list")
				testkit.Len(t, told.reasons(), 0, "then the hook was told")
			})
		})
	}
}

// reasons returns the errors since the last take.
func (s *states) reasons() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.list {
		if state.Err != nil {
			list = append(list, state.Err.Error())
		}
	}
	s.list = nil
	return list
}

// TestALongStreamedListIsNotCut: a slow initial list may take minutes, in any order of names and
// versions. When it is over, other events may come before its end is announced.
func TestALongStreamedListIsNotCut(t *testing.T) {
	lines := func(yield func(time.Duration, string) bool) {
		for i := range 40 {
			if !yield(25*time.Second, addedLine(fmt.Sprint("object-", i), 2+i*7%40)) {
				return
			}
		}
		for i := range 25 {
			if !yield(time.Second, eventLine("MODIFIED", "object-0", 100+i)) {
				return
			}
		}
		_ = yield(0, eventLine("DELETED", "object-1", 130)) && yield(0, addedLine("object-1", 131)) && yield(0, endLine(140))
	}
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for i := range 200 {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("object-", i)))
		}
		api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Change: streamed(lines)})
		all, told := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](all)
		defer testkit.Start(t, all.Run)()
		testkit.Equal(t, synced(t, maps), 40*25*time.Second+25*time.Second, "synced after")
		s := maps.State()
		if got := told.take(); got != "" || s.Lists != 1 || s.Watches != 1 || s.Phase != hook.Synced || s.Objects != 40 {
			t.Errorf("the hook was told %q; %s, with %d lists and %d objects", got, s, s.Lists, s.Objects)
		}
	})
}
