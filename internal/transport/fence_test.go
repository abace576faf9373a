// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

var errLost = errors.New("lost")

// trial is a client whose connections and answers take as long as a test wants.
type trial struct {
	*client.Client
	t       *testing.T
	server  *http.Server
	dialing time.Duration
	answer  time.Duration

	mu   sync.Mutex
	seen []string
}

func newTrial(t *testing.T, o client.Options) *trial {
	t.Helper()
	f := &trial{t: t}
	pipes := make(pipes)
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: time.Hour}
	go f.server.Serve(pipes)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-time.After(f.dialing):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		ours, theirs := net.Pipe()
		pipes <- theirs
		return ours, nil
	}
	var err error
	f.Client, err = client.New(&rest.Config{Host: "http://x.test", Transport: &http.Transport{DialContext: dial}}, o)
	testkit.NoError(t, err)
	return f
}

// close lets everything end.
func (f *trial) close() {
	f.Close()
	f.server.Close()
	synctest.Wait()
}

// ServeHTTP answers any request with an object.
func (f *trial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Method)
	f.mu.Unlock()
	io.Copy(io.Discard, r.Body)
	time.Sleep(f.answer)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, plain)
}

// do makes a request and reads the answer.
func (f *trial) do(ctx context.Context, method string) error {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://x.test"+pods+"/p", strings.NewReader("{}"))
	testkit.NoError(f.t, err)
	resp, err := f.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// pipes is a listener for connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

const limit = 10 * time.Second

// TestL2_WaitingEndsWithTheTrust: at that very moment, and not before.
func TestL2_WaitingEndsWithTheTrust(t *testing.T) {
	for name, c := range map[string]struct {
		dialing, answer time.Duration
		meanwhile       func(*term.Term) // begins with the request
		after           time.Duration    // it is refused, if it is
		cause           error
	}{
		"the trust runs out": {dialing: time.Hour, after: limit},
		"renewed": {dialing: time.Hour, after: 14 * time.Second, meanwhile: func(leading *term.Term) {
			start := time.Now().Add(4 * time.Second)
			time.Sleep(6 * time.Second)
			leading.Extend(start)
		}},
		"renewed twice, and lost": {dialing: time.Hour, after: 13 * time.Second, cause: errLost, meanwhile: func(leading *term.Term) {
			for range 2 {
				time.Sleep(6 * time.Second)
				leading.Extend(time.Now())
			}
			time.Sleep(time.Second)
			leading.End(errLost)
		}},
		"in time":                         {dialing: limit - 1},
		"renewed in time":                 {dialing: 12 * time.Second, meanwhile: func(leading *term.Term) { time.Sleep(limit - 1); leading.Extend(time.Now()) }},
		"on the wire, and runs out":       {answer: time.Hour},
		"on the wire, and lost meanwhile": {answer: time.Hour, meanwhile: func(leading *term.Term) { time.Sleep(time.Nanosecond); leading.End(errLost) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTrial(t, client.Options{})
				defer f.close()
				f.dialing, f.answer = c.dialing, c.answer
				start := time.Now()
				leading := term.New(term.Token{}, start, limit)
				defer leading.End(nil)
				if c.meanwhile != nil {
					go c.meanwhile(leading)
				}
				l := journal.New(journal.Origin{})
				err := f.do(journal.With(term.With(t.Context(), leading), l), http.MethodPut)
				if c.after == 0 {
					if got := says(l); err != nil || len(got) != 1 || got[0] != "update pods ns/p stored p u@7" {
						t.Errorf("%v, and the ledger has %v", err, got)
					}
					return
				}
				if took := time.Since(start); !errors.Is(err, term.ErrFenced) || c.cause != nil && !errors.Is(err, c.cause) || took != c.after {
					t.Errorf("after %s: %v, want %s", took, err, c.after)
				}
				if requests := l.Requests(); len(f.seen) != 0 || l.Writes() != nil || len(requests) != 1 || !errors.Is(requests[0].Err, term.ErrFenced) {
					t.Errorf("arrived: %v, the ledger has %v", f.seen, says(l))
				}
			})
		})
	}
}

// closed reports whether a body was closed.
type closed struct {
	io.Reader
	yes bool
}

func (c *closed) Close() error { c.yes = true; return nil }

// TestL2_NothingPassesWithoutTrust: errors of refused requests name controller, request and reason,
// and nothing reaches the transport.
func TestL2_NothingPassesWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTrial(t, client.Options{})
		defer f.close()
		leading := term.New(term.Token{Lease: "u", ResourceVersion: "7"}, time.Now(), limit)
		ctx := term.With(t.Context(), leading)
		if err := errors.Join(f.do(ctx, http.MethodGet), f.do(ctx, http.MethodPut)); err != nil || len(f.seen) != 2 {
			t.Fatalf("%v, arrived: %v", err, f.seen)
		}
		time.Sleep(limit)
		for _, c := range []struct {
			end  bool
			want string
		}{
			{false, "controller web: the request to update pods ns/p is refused by the fence: the term of leadership u@7 is not trusted any more: the Lease was not renewed in time: it has been 10s, at most 10s are allowed"},
			{true, "controller web: the request to update pods ns/p is refused by the fence: the term of leadership u@7 has ended: lost"},
		} {
			if c.end {
				leading.End(errLost)
			}
			for _, method := range []string{http.MethodGet, http.MethodPut} {
				l := journal.New(journal.Origin{Controller: "web"})
				body := &closed{Reader: strings.NewReader("{}")}
				req, _ := http.NewRequestWithContext(journal.With(ctx, l), method, "http://x.test"+pods+"/p", body)
				_, err := f.HTTPClient().Transport.RoundTrip(req)
				var fenced *term.FencedError
				if !errors.As(err, &fenced) || fenced.Controller != "web" || fenced.Request.Resource != "pods" || !errors.Is(err, term.ErrFenced) || c.end != errors.Is(err, errLost) {
					t.Fatalf("%s: %v", method, err)
				}
				if method == http.MethodPut && err.Error() != c.want {
					t.Errorf("got  %s\nwant %s", err, c.want)
				}
				if !body.yes || l.Writes() != nil || len(l.Requests()) != 1 {
					t.Errorf("%s: closed is %t, the ledger has %v", method, body.yes, l.Writes())
				}
				if err := f.do(ctx, method); !errors.Is(err, term.ErrFenced) { // without a ledger
					t.Errorf("%s: %v", method, err)
				}
			}
		}
		leading.Extend(time.Now())
		testkit.ErrorIs(t, f.do(ctx, http.MethodPut), term.ErrFenced)
		testkit.Len(t, f.seen, 2)
	})
}

// TestL2_ATransportThatDoesNotTell: the request is cancelled, because it may still wait. It may
// also be on the wire, so the result is uncertain.
func TestL2_ATransportThatDoesNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		leading := term.New(term.Token{}, start, limit)
		defer leading.End(nil)
		c, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt}, client.Options{})
		testkit.NoError(t, err)
		l := journal.New(journal.Origin{})
		req, _ := http.NewRequestWithContext(term.With(journal.With(t.Context(), l), leading), http.MethodPut, "http://x.test"+pods+"/p", nil)
		_, err = c.HTTPClient().Do(req)
		if writes := l.Writes(); !errors.Is(err, term.ErrFenced) || time.Since(start) != limit || len(writes) != 1 || writes[0].Effect != ledger.Uncertain {
			t.Errorf("after %s: %v, and the ledger has %v", time.Since(start), err, writes)
		}
	})
}

// TestTheFenceKeepsNothing: the context for a request under a term ends with the request, and not
// before.
func TestTheFenceKeepsNothing(t *testing.T) {
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	for name, c := range map[string]struct {
		reply reply
		read  func(*http.Response)
	}{
		"read to its end": {ok(plain), func(r *http.Response) { io.Copy(io.Discard, r.Body) }},
		"closed":          {ok(plain), func(r *http.Response) { r.Body.Close() }},
		"empty":           {reply{code: http.StatusOK}, func(*http.Response) {}},
		"upgraded":        {reply{code: http.StatusSwitchingProtocols, body: strings.NewReader("x")}, func(*http.Response) {}},
		"failed":          {reply{err: io.ErrUnexpectedEOF}, nil},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			var inner *http.Request
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				inner = r
				a := c.reply
				a.body = strings.NewReader(plain)
				if c.reply.body == nil {
					a.body = nil
				}
				return a.RoundTrip(r)
			})
			f, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt, UserAgent: "x"}, client.Options{})
			testkit.NoError(t, err)
			req, _ := http.NewRequestWithContext(term.With(t.Context(), leading), method, "http://x.test"+pods+"/p", nil)
			req.Header.Set("User-Agent", "x")
			resp, err := f.HTTPClient().Transport.RoundTrip(req)
			if err == nil {
				testkit.Equal(t, resp.Request, req, name, "the answer belongs to another request")
				if resp.Body != http.NoBody && resp.StatusCode == http.StatusOK && inner.Context().Err() != nil {
					t.Errorf("%s: the context has ended before the body was read", name)
				}
				c.read(resp)
			}
			testkit.NotEqual(t, inner.Context().Err(), nil, method, name, "the context goes on")
			testkit.Equal(t, req.Context().Err(), nil, name, "the caller's context")
		}
	}
}

// TestL2_WithoutATerm: requests that may write are counted, and refused if the client is strict.
// Others pass.
func TestL2_WithoutATerm(t *testing.T) {
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	for name, c := range map[string]struct {
		request string
		ctx     func(context.Context) context.Context
		counted bool
	}{
		"create":           {"POST " + pods, nil, true},
		"update":           {"PUT " + pods + "/p", nil, true},
		"status":           {"PATCH " + pods + "/p/status", nil, true},
		"delete":           {"DELETE " + pods + "/p", nil, true},
		"deletecollection": {"DELETE " + pods, nil, true},
		"with a ledger": {"PUT " + pods + "/p", func(ctx context.Context) context.Context {
			return journal.With(ctx, journal.New(journal.Origin{}))
		}, true},
		"under a term": {"PUT " + pods + "/p", func(ctx context.Context) context.Context { return term.With(ctx, leading) }, false},
		"on purpose":   {"PUT " + pods + "/p", term.Without, false},
		"read":         {"GET " + pods + "/p", nil, false},
		"options":      {"OPTIONS " + pods + "/p", nil, false},
		"dry run":      {"PUT " + pods + "/p?dryRun=All", nil, false},
		"review":       {"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, false},
		"token":        {"POST /api/v1/namespaces/ns/serviceaccounts/s/token", nil, false},
		"no resource":  {"POST /debug/flags/v", nil, false},
	} {
		for _, strict := range []bool{false, true} {
			arrived := 0
			var events []hook.APIRequest
			rt := roundTripper(func(r *http.Request) (*http.Response, error) { arrived++; return ok(plain).RoundTrip(r) })
			f, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt}, client.Options{
				RequireTerm: strict, Hook: hook.On(func(r *hook.Unfenced) { events = append(events, r.APIRequest) }),
			})
			testkit.NoError(t, err)
			ctx := t.Context()
			if c.ctx != nil {
				ctx = c.ctx(ctx)
			}
			method, path, _ := strings.Cut(c.request, " ")
			req, _ := http.NewRequestWithContext(ctx, method, "http://x.test"+path, nil)
			_, err = f.HTTPClient().Do(req)
			if refused := strict && c.counted; errors.Is(err, term.ErrFenced) != refused || (arrived == 0) != refused {
				t.Errorf("%s, strict is %t: %v, arrived: %d", name, strict, err, arrived)
			}
			if counted := len(events) == 1; counted != c.counted || counted && (errors.Is(events[0].Err, term.ErrFenced) != strict || events[0].Verb == "") {
				t.Errorf("%s, strict is %t: counted %+v", name, strict, events)
			}
		}
	}
}

// TestStrictSaysWhatToDo, also without hooks.
func TestStrictSaysWhatToDo(t *testing.T) {
	f := newClient(t, sim.NewServer(), client.Options{RequireTerm: true})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, sim.Host+pods+"/p", nil)
	_, err := f.HTTPClient().Do(req)
	testkit.ErrorContains(t, err, "term.Without")
	testkit.ErrorContains(t, err, "delete pods ns/p")
}

// TestL2_RenewalsRaceWithTheTrust: requests begin, wait and are sent while renewals are answered
// early, late or too late. A request is sent only under a renewal that was known then and is not
// over. A refusal comes at once. Some requests are of parts of the term.
func TestL2_RenewalsRaceWithTheTrust(t *testing.T) {
	passed, refused := 0, 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			pause := func(r *rand.Rand, most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
			leading := term.New(term.Token{}, time.Now(), limit)
			var mu sync.Mutex // guards known
			known := time.Now()
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				own := rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano())))
				trace := httptrace.ContextClientTrace(r.Context())
				for stages := []func(){func() { trace.GotConn(httptrace.GotConnInfo{Conn: nothing{}}) }, trace.WroteHeaders}; len(stages) > 0; stages = stages[1:] {
					select {
					case <-time.After(time.Duration(own.Int64N(int64(limit / 2)))):
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
					stages[0]()
				}
				if err := r.Context().Err(); err != nil { // as HTTP/2 looks before it writes
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				if since := time.Since(known); since >= limit {
					t.Errorf("a request is sent %s after the last renewal", since)
				}
				return ok(plain).RoundTrip(r)
			})
			c, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt}, client.Options{})
			testkit.NoError(t, err)
			var group sync.WaitGroup
			for i := range 5 {
				own := rand.New(rand.NewPCG(seed, uint64(i)+2))
				ctx := term.With(t.Context(), leading)
				if i%2 == 1 {
					ctx = fence.With(ctx, (*fence.Term)(leading).Part("slot 17"))
				}
				group.Go(func() {
					for range 10 {
						pause(own, limit/2)
						req, _ := http.NewRequestWithContext(ctx, http.MethodPut, "http://x.test"+pods+"/p", nil)
						resp, err := c.HTTPClient().Do(req)
						mu.Lock()
						switch since := time.Since(known); {
						case err == nil:
							passed++
							resp.Body.Close()
						case !errors.Is(err, term.ErrFenced) || since < limit:
							t.Errorf("%s after the last renewal: %v", since, err)
						default:
							refused++
						}
						mu.Unlock()
					}
				})
			}
			for range 10 {
				pause(random, limit*3/4)
				sent := time.Now()
				pause(random, limit*3/4)
				mu.Lock()
				leading.Extend(sent)
				known = sent
				mu.Unlock()
			}
			group.Wait()
			leading.End(nil)
		})
	}
	if passed < 1000 || refused < 1000 {
		t.Errorf("%d have passed, and %d were refused", passed, refused)
	}
}

// nothing is a connection that the test does not use.
type nothing struct{ net.Conn }

func (nothing) Close() error { return nil }

// TestL2_StrictIsInherited: what is made from the configuration of a strict Client is strict, too.
func TestL2_StrictIsInherited(t *testing.T) {
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: ok(plain)}, client.Options{RequireTerm: true})
	testkit.NoError(t, err)
	again, err := client.New(c.Config(), client.Options{})
	testkit.NoError(t, err)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.test"+pods, strings.NewReader("{}"))
	testkit.ErrorIs(t, testkit.Err(again.HTTPClient().Do(req)), term.ErrFenced, "a write without a term")
}
