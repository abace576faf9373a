// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// memory is a network with one listener at a time, made of net.Pipe, so that it works in a bubble.
type memory struct {
	mu     sync.Mutex // guards accept
	accept chan net.Conn
}

func (m *memory) listen(string, string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accept = make(chan net.Conn)
	return &memoryListener{m, m.accept, make(chan struct{}), sync.Once{}}, nil
}

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	m.mu.Lock()
	accept := m.accept
	m.mu.Unlock()
	ours, theirs := net.Pipe()
	select {
	case accept <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryListener struct {
	*memory
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *memoryListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// upstream is an in-memory API server: it is called with each request, and writes the answer's
// body.
type upstream func(h *http.Request, body io.Writer)

func (u upstream) RoundTrip(h *http.Request) (*http.Response, error) {
	if err := h.Context().Err(); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	unhook := context.AfterFunc(h.Context(), func() { w.CloseWithError(context.Cause(h.Context())) })
	go func() {
		defer close(done)
		defer unhook()
		u(h, w)
		w.CloseWithError(context.Cause(h.Context())) // io.EOF for nil
	}()
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		ContentLength: -1, Request: h, Body: joined{r, done}}, nil
}

type joined struct {
	*io.PipeReader
	done chan struct{}
}

func (j joined) Close() error { err := j.PipeReader.Close(); <-j.done; return err }

// world is a proxy, or rules without one, in a bubble, with a client.
type world struct {
	*Rules
	t      *testing.T
	client *http.Client
	// down ends running requests: Proxy.Down, or Rules.Stop without a proxy
	down, stop func()
}

// inBubble runs a test with HTTP/1.1, with HTTP/2, and without a proxy, each in a bubble.
func inBubble(t *testing.T, u upstream, o Options, test func(*world)) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var network memory
				p, err := start(t.Context(), &rest.Config{Host: "http://api", Transport: u}, o, network.listen)
				testkit.NoError(t, err)
				defer p.Stop()
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(p.identity.pem)
				transport := &http.Transport{
					DialContext:     network.dial,
					TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: []string{protocol}, ServerName: "127.0.0.1"},
					Protocols:       new(http.Protocols),
				}
				transport.Protocols.SetHTTP1(protocol == "http/1.1")
				transport.Protocols.SetHTTP2(protocol == "h2")
				defer transport.CloseIdleConnections()
				test(&world{p.Rules, t, &http.Client{Transport: transport}, p.Down, p.Stop})
			})
		})
	}
	t.Run("transport", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRules(o)
			defer r.Stop()
			test(&world{r, t, &http.Client{Transport: r.Transport(u)}, r.Stop, r.Stop})
		})
	})
}

// do sends a request; the caller closes the answer.
func (w *world) do(ctx context.Context, method, path string) (*http.Response, error) {
	h, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:6443"+path, strings.NewReader("body"))
	testkit.NoError(w.t, err)
	return w.client.Do(h)
}

func (w *world) mustDo(method, path string) *http.Response {
	w.t.Helper()
	answer, err := w.do(w.t.Context(), method, path)
	testkit.NoError(w.t, err)
	w.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// async sends a request and returns a channel for its error, or the error of reading the answer.
func (w *world) async(method, path string) <-chan error {
	result := make(chan error, 1)
	go func() {
		answer, err := w.do(w.t.Context(), method, path)
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		result <- err
	}()
	return result
}

// readExactly reads one part of n bytes.
func (w *world) readExactly(r io.Reader, n int) string {
	w.t.Helper()
	b := make([]byte, n)
	testkit.NoError(w.t, testkit.Err(io.ReadFull(r, b)))
	return string(b)
}

func (w *world) must(err error) {
	w.t.Helper()
	testkit.NoError(w.t, err)
}

func (w *world) effects() string {
	var all []string
	for _, r := range w.Requests(Match{}) {
		all = append(all, strings.Join(r.Effects, ", "))
	}
	return strings.Join(all, "; ")
}

// still reports whether a request has no result after everything has come to rest.
func still(result <-chan error) bool {
	synctest.Wait()
	select {
	case <-result:
		return false
	default:
		return true
	}
}

const pods = "/api/v1/pods"

func writeAll(body io.Writer, parts ...string) {
	for _, p := range parts {
		if _, err := io.WriteString(body, p); err != nil {
			return
		}
	}
}

func hello(_ *http.Request, body io.Writer) { writeAll(body, "hello") }

// ticker writes a, b, c 100 ms apart, and waits for its request's end.
func ticker(h *http.Request, body io.Writer) {
	if h.URL.RawQuery == "quick" {
		return
	}
	for _, part := range []string{"a", "b", "c"} {
		writeAll(body, part)
		time.Sleep(100 * time.Millisecond)
	}
	<-h.Context().Done()
}

func TestDelay(t *testing.T) {
	inBubble(t, hello, Options{}, func(w *world) {
		w.Add(Rule{Match: Match{Verbs: []string{"list"}}, Delay: 500 * time.Millisecond, Times: 1})
		for _, want := range []time.Duration{0, 500 * time.Millisecond, 0} {
			path := pods
			if want == 0 {
				path = "/version"
			}
			began := time.Now()
			answer := w.mustDo("GET", path)
			testkit.Equal(w.t, w.readExactly(answer.Body, 5), "hello")
			testkit.Equal(w.t, time.Since(began), want, fmt.Sprintf("%s took", path))
		}
		testkit.Equal(w.t, w.effects(), "; delay 500ms; ")
	})
}

func TestRemoveEndsDelay(t *testing.T) {
	inBubble(t, hello, Options{}, func(w *world) {
		f := w.Add(Rule{Delay: time.Hour})
		began := time.Now()
		result := w.async("POST", pods)
		if !still(result) {
			w.t.Fatal("the request is not delayed")
		}
		f.Remove()
		w.must(<-result)
		testkit.Equal(w.t, time.Since(began), 0)
	})
}

// The lag delays each part from its arrival, not from the part before it.
func TestLag(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		w.Add(Rule{Lag: 500 * time.Millisecond})
		began := time.Now()
		answer := w.mustDo("GET", pods+"?watch=true")
		for i, want := range []string{"a", "b", "c"} {
			testkit.Equal(w.t, w.readExactly(answer.Body, 1), want, fmt.Sprintf("part %d", i))
			testkit.Equal(w.t, time.Since(began), time.Duration(500+100*i)*time.Millisecond, fmt.Sprintf("part %d came after", i))
		}
		testkit.Equal(w.t, w.effects(), "lag 500ms")
	})
}

// Parts that arrive together leave together.
func TestLagKeepsThroughput(t *testing.T) {
	const n = 5000
	many := func(_ *http.Request, body io.Writer) {
		for range n {
			writeAll(body, "0123456789")
		}
	}
	inBubble(t, many, Options{}, func(w *world) {
		w.Add(Rule{Lag: 300 * time.Millisecond})
		w.Add(Rule{Lag: 200 * time.Millisecond})
		began := time.Now()
		content, err := io.ReadAll(w.mustDo("GET", pods+"?watch=true").Body)
		w.must(err)
		testkit.Equal(w.t, string(content) == strings.Repeat("0123456789", n), true, len(content), "bytes arrived")
		testkit.Equal(w.t, time.Since(began), 500*time.Millisecond)
	})
}

// Rules that are added while a watch is open apply to it until they are removed.
func TestAnswersUnderWay(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		answer := w.mustDo("GET", pods+"?watch=true")
		began := time.Now()
		w.readExactly(answer.Body, 1)
		lag := w.Add(Rule{Match: Match{Verbs: []string{"watch"}}, Lag: time.Second})
		other := w.Add(Rule{Match: Match{Verbs: []string{"list"}}, Lag: time.Second})
		w.readExactly(answer.Body, 1)
		testkit.Equal(w.t, time.Since(began), 1100*time.Millisecond, "the second part came after")
		lag.Remove()
		w.readExactly(answer.Body, 1)
		testkit.Equal(w.t, time.Since(began), 1100*time.Millisecond, "the third part came after")
		w.Add(Rule{CutAfter: time.Second})
		if _, err := answer.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			w.t.Errorf("a connection that is cut ends with %v", err)
		}
		testkit.Equal(w.t, time.Since(began), 2100*time.Millisecond, "the connection was cut after")
		testkit.Equal(w.t, lag.Hits(), 1)
		testkit.Equal(w.t, other.Hits(), 0)
	})
}

func TestCutAfter(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		f := w.Add(Rule{Match: Match{Verbs: []string{"watch"}}, CutAfter: 150 * time.Millisecond})
		for range 3 {
			began := time.Now()
			content, err := io.ReadAll(w.mustDo("GET", pods+"?watch=true").Body)
			testkit.Equal(w.t, string(content), "ab")
			testkit.NotEqual(w.t, err, nil)
			testkit.Equal(w.t, time.Since(began), 150*time.Millisecond, "the watch lived for")
		}
		w.must(f.WaitEnded(w.t.Context(), 3))
		testkit.Equal(w.t, w.effects(), "cut; cut; cut")
	})
}

// Of several CutAfter the earliest applies; a removed one does not.
func TestCutAfterSeveral(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		for _, d := range []time.Duration{50, 150, 120, 200} {
			f := w.Add(Rule{CutAfter: d * time.Millisecond})
			if d == 50 {
				defer f.Remove()
				w.must(<-w.async("GET", "/version?quick")) // is over before
				f.Remove()
			}
		}
		began := time.Now()
		_, err := io.ReadAll(w.mustDo("GET", pods+"?watch=true").Body)
		testkit.NotEqual(w.t, err, nil, "the watch")
		testkit.Equal(w.t, time.Since(began), 120*time.Millisecond, "the watch lived for")
		late := w.mustDo("GET", pods+"?watch=true")
		removed := w.Add(Rule{CutAfter: 10 * time.Millisecond})
		removed.Remove()
		testkit.NotEqual(w.t, testkit.Err(io.ReadAll(late.Body)), nil, "the second watch")
		testkit.Equal(w.t, time.Since(began), 240*time.Millisecond, "the second watch was cut after")
	})
}

// An answer that fills the line ends with its client.
func TestFullLineEnds(t *testing.T) {
	inBubble(t, func(_ *http.Request, body io.Writer) {
		writeAll(body, strings.Repeat("x", 1_000_000))
	}, Options{BufferSize: 1}, func(w *world) {
		freeze := w.Add(Rule{Freeze: true})
		result := w.async("GET", pods)
		w.must(freeze.WaitHeld(w.t.Context(), 1))
		synctest.Wait()
		w.Cut(Match{})
		testkit.NotEqual(w.t, <-result, nil, "the request succeeds")
		w.must(freeze.WaitEnded(w.t.Context(), 1))
	})
}

func TestFreeze(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		answer := w.mustDo("GET", pods+"?watch=true")
		w.readExactly(answer.Body, 1)
		freeze := w.Add(Rule{Freeze: true})
		w.must(freeze.WaitHeld(w.t.Context(), 1)) // b
		read := make(chan string)
		go func() {
			for range 2 {
				read <- w.readExactly(answer.Body, 1)
			}
		}()
		synctest.Wait()
		select {
		case got := <-read:
			w.t.Fatalf("%q got through", got)
		default:
		}
		freeze.Release()
		testkit.Equal(w.t, <-read, "b")
		w.must(freeze.WaitHeld(w.t.Context(), 1)) // c
		freeze.Remove()
		testkit.Equal(w.t, <-read, "c")
		testkit.Equal(w.t, w.effects(), "freeze")
	})
}

// The header of an answer is withheld, too, although the API server has executed the request.
func TestFreezeWrite(t *testing.T) {
	executed := make(chan string, 1)
	inBubble(t, func(h *http.Request, _ io.Writer) {
		body, _ := io.ReadAll(h.Body)
		executed <- string(body)
	}, Options{}, func(w *world) {
		freeze := w.Add(Rule{Freeze: true})
		result := w.async("POST", pods)
		w.must(freeze.WaitHeld(w.t.Context(), 1))
		testkit.Equal(w.t, <-executed, "body", "the API server got")
		if !still(result) {
			w.t.Fatal("the answer got through")
		}
		freeze.Remove()
		w.must(<-result)
	})
}

// The API server waits while the line is full, whatever the size, and continues when there is room.
func TestBufferSize(t *testing.T) {
	for _, size := range []int{1, 100, 100_000} {
		written := 0
		inBubble(t, func(_ *http.Request, body io.Writer) {
			for range 100 {
				writeAll(body, strings.Repeat("x", 10_000))
				written += 10_000
			}
		}, Options{BufferSize: size}, func(w *world) {
			written = 0
			freeze := w.Add(Rule{Freeze: true})
			result := w.async("GET", pods)
			w.must(freeze.WaitHeld(w.t.Context(), 1))
			synctest.Wait()
			if written > size+2*10_000 {
				w.t.Errorf("%d bytes were read with room for %d", written, size)
			}
			freeze.Remove()
			w.must(<-result)
			testkit.Equal(w.t, written, 1_000_000, "bytes were read in the end")
		})
	}
}

func TestHold(t *testing.T) {
	arrived := make(chan string, 10)
	inBubble(t, func(h *http.Request, _ io.Writer) { arrived <- h.Method }, Options{}, func(w *world) {
		hold := w.Add(Rule{Match: Match{Verbs: []string{"create"}}, Hold: true, Times: 3})
		first, second := w.async("POST", pods), w.async("POST", pods)
		w.must(hold.WaitHeld(w.t.Context(), 2))
		w.must(<-w.async("DELETE", pods+"/p")) // does not match
		if got := <-arrived; got != "DELETE" || !still(first) || !still(second) {
			w.t.Fatalf("a held %s got through", got)
		}
		hold.Release()
		w.must(<-first)
		w.must(<-second)
		third := w.async("POST", pods) // held again
		w.must(hold.WaitHeld(w.t.Context(), 1))
		if !still(third) {
			w.t.Fatal("the third request is not held")
		}
		w.must(<-w.async("POST", pods)) // Times is used up
		hold.Remove()
		w.must(<-third)
		testkit.Equal(w.t, hold.Hits(), 3)
		testkit.DeepEqual(w.t, w.Counts(), map[Kind]int{{Verb: "create", Resource: "pods"}: 4, {Verb: "delete", Resource: "pods"}: 1})
		for range 4 {
			<-arrived
		}
	})
}

// A client that gives up ends its request in any state.
func TestClientGivesUp(t *testing.T) {
	for name, rule := range map[string]Rule{
		"hold": {Hold: true}, "hang": {Hang: true}, "delay 1h0m0s": {Delay: time.Hour}, "freeze": {Freeze: true}, "lag 1h0m0s": {Lag: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hello, Options{}, func(w *world) {
				f := w.Add(rule)
				ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
				defer cancel()
				if _, err := w.do(ctx, "POST", pods); !errors.Is(err, context.DeadlineExceeded) {
					w.t.Fatalf("the request ends with %v", err)
				}
				w.must(f.WaitEnded(w.t.Context(), 1))
				ctx, cancel = context.WithTimeout(w.t.Context(), time.Second)
				defer cancel()
				testkit.ErrorIs(w.t, f.WaitHeld(ctx, 1), context.DeadlineExceeded, "it is held still")
				testkit.Equal(w.t, w.effects(), name)
			})
		})
	}
}

func TestCutAndLose(t *testing.T) {
	executed := make(chan bool, 10)
	inBubble(t, func(*http.Request, io.Writer) { executed <- true }, Options{}, func(w *world) {
		w.Add(Rule{Cut: true, Times: 1})
		f := w.Add(Rule{Lose: true, Times: 2}) // the first time the request does not get there
		for i, want := range []int{0, 1, 1} {
			_, err := w.do(w.t.Context(), "POST", pods)
			synctest.Wait() // this API server answers before it executes
			testkit.Equal(w.t, err == nil, i == 2, "request", i, err)
			testkit.Len(w.t, executed, want, "request", i)
			for len(executed) > 0 {
				<-executed
			}
		}
		w.must(f.WaitEnded(w.t.Context(), 2))
		testkit.Equal(w.t, w.effects(), "cut; lose; ")
	})
}

// Cut ends matching running requests, including held ones and open watches, and no others.
func TestCutUnderWay(t *testing.T) {
	inBubble(t, ticker, Options{}, func(w *world) {
		hold := w.Add(Rule{Match: Match{Verbs: []string{"create"}}, Hold: true})
		held := w.async("POST", pods)
		watch := w.async("GET", pods+"?watch=true")
		other := w.async("GET", "/api/v1/secrets?watch=true")
		w.must(hold.WaitHeld(w.t.Context(), 1))
		synctest.Wait()
		testkit.Equal(w.t, w.Cut(Match{Resources: []string{"pods"}}), 2)
		testkit.NotEqual(w.t, <-held, nil)
		testkit.NotEqual(w.t, <-watch, nil)
		testkit.Equal(w.t, still(other), true, "the other one ended")
		testkit.Equal(w.t, w.Cut(Match{}), 1, "cut then")
		<-other
	})
}

// A Wait ends with its context and with the proxy, and its error reports the progress.
func TestWaitEnds(t *testing.T) {
	inBubble(t, hello, Options{}, func(w *world) {
		f := w.Add(Rule{})
		w.must(<-w.async("POST", pods))
		w.must(f.WaitHits(w.t.Context(), 1))
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		err := f.WaitHits(ctx, 2)
		testkit.ErrorIs(w.t, err, context.DeadlineExceeded)
		testkit.ErrorContains(w.t, err, "got 1, with 1 hits")
		result := make(chan error)
		go func() { result <- f.WaitHeld(w.t.Context(), 1) }()
		synctest.Wait()
		w.stop()
		testkit.ErrorIs(w.t, <-result, ErrStopped)
	})
}

func TestLog(t *testing.T) {
	inBubble(t, hello, Options{LogSize: 2}, func(w *world) {
		f := w.Add(Rule{})
		for _, name := range []string{"a", "b", "c"} {
			w.must(<-w.async("DELETE", pods+"/"+name))
		}
		w.must(f.WaitEnded(w.t.Context(), 3))
		log := w.Requests(Match{})
		if len(log) != 2 || log[0].Name != "b" || log[1].Name != "c" || log[1].Status != 200 || log[1].Ended.IsZero() {
			w.t.Errorf("log %+v", log)
		}
		testkit.Len(w.t, w.Requests(Match{Name: "b"}), 1, "log of b")
	})
}

func TestOptionsValidate(t *testing.T) {
	for _, o := range []Options{{LogSize: -1}, {BufferSize: -1}} {
		testkit.ErrorContains(t, testkit.Err(Start(t.Context(), &rest.Config{Host: "api"}, o)), "Options.", o)
	}
	testkit.ErrorContains(t, testkit.Err(Start(t.Context(), nil, Options{})), "target is nil", "without a target")
}

// Change sees the request, may change it and its answer, may answer itself, and nests in the order
// of Add.
func TestChange(t *testing.T) {
	echo := func(h *http.Request, body io.Writer) {
		sent, err := io.ReadAll(h.Body)
		testkit.Equal(t, err, nil)
		writeAll(body, h.Header.Get("X-Changed")+string(sent))
	}
	inBubble(t, echo, Options{}, func(w *world) {
		change := func(name string) Rule {
			return Rule{Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
				sent, err := io.ReadAll(h.Body)
				w.must(err)
				h.Header.Add("X-Changed", name)
				h.Body = io.NopCloser(strings.NewReader(string(sent) + " to " + name))
				answer, err := next.RoundTrip(h)
				if err == nil {
					answer.Header.Add("X-Answer", name)
				}
				return answer, err
			}}
		}
		first, second := w.Add(change("first")), w.Add(change("second"))
		answer := w.mustDo("POST", pods)
		content, err := io.ReadAll(answer.Body)
		w.must(err)
		testkit.Equal(w.t, string(content), "firstbody to first to second", "the API server got")
		testkit.Equal(w.t, strings.Join(answer.Header["X-Answer"], " "), "second first", "the answer was changed by")
		second.Remove()
		own := w.Add(Rule{Change: func(h *http.Request, _ http.RoundTripper) (*http.Response, error) {
			return statusAnswer(h, metav1.Status{Code: http.StatusTeapot}), nil
		}})
		answer = w.mustDo("POST", pods)
		testkit.Equal(w.t, answer.StatusCode, http.StatusTeapot)
		testkit.Equal(w.t, answer.Header.Get("X-Answer"), "first")
		testkit.Equal(w.t, fmt.Sprint(first.Hits(), second.Hits(), own.Hits()), "2 1 1")
		testkit.Equal(w.t, w.effects(), "change; change")
	})
}

// Without a proxy, a cut looks like a reset connection, and Stop ends all requests.
func TestTransportErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRules()
		client := &http.Client{Transport: r.Transport(upstream(ticker))}
		w := &world{Rules: r, t: t, client: client}
		cut := w.Add(Rule{Cut: true})
		_, err := w.do(t.Context(), "GET", pods)
		testkit.ErrorSatisfies(t, err, utilnet.IsConnectionReset, "a cut request")
		testkit.Equal(t, errors.Is(err, context.Canceled), false, "a cut request")
		cut.Remove()
		answer := w.mustDo("GET", pods+"?watch=true")
		w.Cut(Match{})
		_, err = io.ReadAll(answer.Body)
		testkit.ErrorSatisfies(t, err, utilnet.IsConnectionReset, "a cut answer")
		testkit.Equal(t, errors.Is(err, context.Canceled), false, "a cut answer")
		w.Add(Rule{Match: Match{Verbs: []string{"create"}}, Hold: true, Deliver: true})
		held, open := w.async("POST", pods), w.mustDo("GET", pods+"?watch=true")
		synctest.Wait()
		r.Stop()
		r.Stop()
		testkit.ErrorIs(t, <-held, ErrStopped, "a held request ends with")
		testkit.ErrorIs(t, testkit.Err(io.ReadAll(open.Body)), ErrStopped, "an open answer ends with")
		testkit.ErrorIs(t, testkit.Err(w.do(t.Context(), "GET", pods)), ErrStopped, "a later request ends with")
	})
}

// idle counts calls of CloseIdleConnections.
type idle struct {
	http.RoundTripper

	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// TestTransport_ClosesIdleConnections: a client that closes them reaches the transport below.
func TestTransport_ClosesIdleConnections(t *testing.T) {
	below := &idle{}
	utilnet.CloseIdleConnectionsFor(NewRules().Transport(below))
	testkit.Equal(t, below.closed, 1)
}
