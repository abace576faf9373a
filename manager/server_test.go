// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// serving makes a manager with both servers on wires.
func serving(t *testing.T, api http.RoundTripper, change func(*manager.Options)) (m *manager.Manager, s *handlers, health, server *http.Client) {
	w := newWire()
	m, health = healthy(t, api, change)
	return m, addServer(m, serverOptions{Listener: w}), health, w.client(t)
}

// held is a handler that reports a request, waits, and answers with the state of its context.
type held struct{ came, free chan struct{} }

func newHeld() *held { return &held{came: make(chan struct{}, 10), free: make(chan struct{})} }

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.came <- struct{}{}
	select {
	case <-h.free:
		fmt.Fprint(w, "done")
	case <-r.Context().Done():
		fmt.Fprint(w, context.Cause(r.Context()))
	}
}

// fetch gets a URL in the background.
func fetch(t *testing.T, c *http.Client, url string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		_, body := get(t, c, url)
		answer <- body
	}()
	return answer
}

// plain makes a client with its own connections, without HTTP/2, which does not support hijacking.
func plain(c *http.Client) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       c.Transport.(*http.Transport).DialContext,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
		DisableKeepAlives: true,
	}}
}

func TestM1_RequestsUnderWayAreAnsweredAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, health, server := serving(t, newAPI(), nil)
		h := newHeld()
		s.Handle("/held", h)
		stop, result := start(t, m)
		answer := fetch(t, server, "https://x/held")
		<-h.came
		stop()
		testkit.Pass(10 * time.Second)
		if status, body := get(t, plain(server), "https://x/held"); status != 0 || !strings.Contains(body, errUnplugged.Error()) {
			t.Errorf("a new request is answered with %d %s", status, body)
		}
		if status, body := get(t, health, "http://x/livez"); status != 0 || !strings.Contains(body, errUnplugged.Error()) {
			t.Errorf("the other server answers %d %s", status, body)
		}
		began := time.Now()
		close(h.free)
		testkit.Equal(t, <-answer, "done", "the request is answered with")
		ok(t, result())
		testkit.AtMost(t, time.Since(began), time.Second)
	})
}

func TestM3_RequestsAreCancelledWhenTheGraceTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := serving(t, newAPI(), func(o *manager.Options) { o.Grace = 10 * time.Second })
		h := newHeld()
		s.Handle("/held", h)
		m.AddEverywhere("slow", (&diary{}).until("slow", 4*time.Second)) // servers have the rest
		stop, result := start(t, m)
		answer := fetch(t, server, "https://x/held")
		<-h.came
		began := time.Now()
		stop()
		select {
		case body := <-answer:
			testkit.Equal(t, body, "the grace time of 10s is over: context canceled", "the request is answered with")
		case <-time.After(time.Minute):
			t.Error("the request is not answered")
			close(h.free)
		}
		ok(t, result())
		if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+250*time.Millisecond {
			t.Errorf("Run returned after %s", took)
		}
	})
}

func TestM1_AHandlerThatDoesNotReturnIsNamedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := serving(t, newAPI(), nil)
		came, free := make(chan struct{}, 2), make(chan struct{})
		defer close(free)
		s.Handle("GET /stubborn", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			came <- struct{}{}
			stubborn(free)
		}))
		s.Handle("GET /hijacker", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			came <- struct{}{}
			stubborn(free)
		}))
		stop, result := start(t, m)
		hijacked := fetch(t, plain(server), "https://x/hijacker")
		answer := fetch(t, server, "https://x/stubborn")
		<-came
		<-came
		began := time.Now()
		stop()
		err := result()
		testkit.Equal(t, time.Since(began), 28*time.Second, "Run returned after")
		wantParts(t, err, "the server on wire has not stopped in time:\n", "manager_test.stubborn")
		for _, part := range []string{`"handler":"GET /stubborn"`, `"handler":"GET /hijacker"`} {
			testkit.ErrorContains(t, err, part, fmt.Sprintf("the error does not have %s", part))
		}
		if strings.Contains(err.Error(), "health server") {
			t.Errorf("the error names what has stopped:\n%v", err)
		}
		<-answer
		_ = hijacked // the connection belongs to the handler
	})
}

func TestM1_AHealthCheckThatDoesNotReturnIsNamedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, health, _ := serving(t, newAPI(), nil)
		free := make(chan struct{})
		defer close(free)
		m.AddLivezCheck("stubborn", func(context.Context) error {
			stubborn(free)
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		get(t, health, "http://x/livez")
		stop()
		wantParts(t, result(), "the health server on wire has not stopped in time:\n", "manager_test.stubborn")
	})
}

// Neither a silent connection nor a kept one delays a stop.
func TestM3_SilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		m := newManager(newAPI(), nil)
		addHealth(m, serverOptions{Listener: w})
		stop, result := start(t, m)
		want(t, w.client(t), "http://x/livez", 200, "ok") // and stays connected
		testkit.Pass(time.Second)
		conn, err := w.dial(t.Context(), "", "")
		testkit.NoError(t, err)
		defer conn.Close()
		synctest.Wait()
		began := time.Now()
		stop()
		ok(t, result())
		testkit.AtMost(t, time.Since(began), 500*time.Millisecond)
		testkit.Equal(t, testkit.Err(conn.Read(make([]byte, 1))), io.EOF, "the connection is not closed")
	})
}

func TestM2_ServersAreFirstAndLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m, s, health, server := serving(t, api, elected)
		s.Handle("/page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
		var late atomic.Bool
		api.Intercept(func(*sim.Request) (*http.Response, error) {
			if !late.Swap(true) {
				want(t, health, "http://x/livez", 200, "ok") // before the first request
			}
			return nil, nil
		})
		m.AddEverywhere("everywhere", func(ctx context.Context) error {
			want(t, server, "https://x/page", 200, "page")
			want(t, health, "http://x/readyz/shutdown", 200, "ok")
			<-ctx.Done()
			want(t, server, "https://x/page", 200, "page")
			want(t, health, "http://x/livez", 200, "ok")
			want(t, health, "http://x/readyz/shutdown", 500, "[-]shutdown failed: the manager is stopping")
			return nil
		})
		c := newFake("fake", &diary{})
		c.warm = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			want(t, server, "https://x/page", 200, "page")
			return nil
		}
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		stop()
		ok(t, result())
		status, _ := get(t, server, "https://x/page")
		testkit.Equal(t, status, 0, "the server answers after Run")
	})
}

func TestAnAddressThatIsTaken(t *testing.T) {
	first, err := listenOn("127.0.0.1:0")
	testkit.NoError(t, err)
	defer first.Close()
	taken := first.Addr().String()
	for name, add := range map[string]func(*manager.Manager){
		"health server": func(m *manager.Manager) { addHealth(m, serverOptions{Address: taken}) },
		"server": func(m *manager.Manager) {
			addHealth(m, serverOptions{Address: "127.0.0.1:0"})
			addServer(m, serverOptions{Address: taken})
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPI()
			m := newManager(api, nil)
			add(m)
			m.AddEverywhere("everywhere", func(context.Context) error {
				t.Error("something is started")
				return nil
			})
			err := m.Run(t.Context())
			text := fmt.Sprintf(`the manager "test" cannot run: the %s: the address %s is taken: stop what listens there, or choose another one`, name, taken)
			testkit.Equal(t, fmt.Sprint(err), text, "Run returned")
			testkit.Len(t, api.Requests(), 0)
		})
	}
}

func TestAServerThatEndsByItselfEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		m := newManager(newAPI(), nil)
		addHealth(m, serverOptions{Listener: w})
		_, result := start(t, m)
		testkit.Pass(time.Second)
		w.Close()
		wantParts(t, result(), "the health server on wire: nobody listens")
	})
}

func TestHandlersThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m, s, _, server := serving(t, newAPI(), func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		s.Handle("GET /mad", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("mad") }))
		s.Handle("GET /late", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half of it")
			w.(http.Flusher).Flush()
			panic("too late")
		}))
		s.Handle("GET /abort", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, server, "https://x/mad", 500, "the handler of GET /mad has failed; see the log")
		for _, path := range []string{"late", "abort"} {
			if status, body := get(t, server, "https://x/"+path); status != 0 {
				t.Errorf("/%s is answered with %d %s", path, status, body)
			}
		}
		stop()
		ok(t, result())
		for _, line := range []string{`handler="GET /mad" panic=mad stack=`, `handler="GET /late" panic="too late" stack=`} {
			testkit.Contains(t, log.String(), line, fmt.Sprintf("the log has no %s", line))
		}
		testkit.NotContains(t, log.String(), "superfluous")
		testkit.NotContains(t, log.String(), "/abort")
	})
}

func TestHandleWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := serving(t, newAPI(), nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, server, "https://x/late", 404, "404 page not found")
		s.Handle("/late", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		want(t, server, "https://x/late", 200, "HTTP/2.0")
		s.Handle("/late", http.NotFoundHandler())
		wantParts(t, result(), `Handle: cannot use the pattern "/late": `)
		stop()
	})
}

func TestServerWiringMistakes(t *testing.T) {
	page := http.NotFoundHandler()
	var none *held
	for name, test := range map[string]struct {
		wire    func(*handlers)
		options serverOptions
		want    string
	}{
		"no handler":  {wire: func(s *handlers) { s.Handle("/a", nil) }, want: `the server: Handle: the handler of "/a" is nil`},
		"nil handler": {wire: func(s *handlers) { s.Handle("/a", none) }, want: `the server: Handle: the handler of "/a" is nil`},
		"nil func":    {wire: func(s *handlers) { s.Handle("/a", http.HandlerFunc(nil)) }, want: `the server: Handle: the handler of "/a" is nil`},
		"no pattern":  {wire: func(s *handlers) { s.Handle("", page) }, want: `the server: Handle: cannot use the pattern "": http: invalid pattern`},
		"bad pattern": {wire: func(s *handlers) { s.Handle("GET", page) }, want: `the server: Handle: cannot use the pattern "GET": parsing "GET": `},
		"conflict": {wire: func(s *handlers) {
			s.Handle("/a/{x}", page)
			s.Handle("/{y}/b", page)
		}, want: `the server: Handle: cannot use the pattern "/{y}/b": pattern "/{y}/b" conflicts with pattern "/a/{x}": `},
		"two places":        {options: serverOptions{Address: ":0", Listener: newWire()}, want: "the server: server.Options: both Address and Listener are set; set one"},
		"two pairs":         {options: serverOptions{CertDir: "/a", CertFile: "b", KeyFile: "c"}, want: "the server: server.Options.CertDir: CertFile or KeyFile is set as well; set CertDir or the two files"},
		"half a pair":       {options: serverOptions{KeyFile: "c"}, want: "the server: server.Options: one of CertFile and KeyFile is set; set both or none"},
		"one address":       {options: serverOptions{Address: "the health server's"}, want: "the server: the address the health server's is taken: "},
		"nil for Authorize": {wire: func(s *handlers) { s.Authorize(nil) }, want: "the server: Authorize: the handler is nil"},
		"nothing there":     {options: serverOptions{CertDir: "/no/such"}, want: "the server: cannot read the TLS files: open /no/such/tls.crt: "},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(newAPI(), nil)
			l := listen(t)
			addHealth(m, serverOptions{Listener: l})
			if name == "one address" {
				test.options.Address = l.Addr().String()
				test.want = strings.ReplaceAll(test.want, "the health server's", test.options.Address)
			}
			s := addServer(m, test.options)
			if test.wire != nil {
				test.wire(s)
			}
			err := m.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), `the manager "test" cannot run: `+test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Run returned %v\nwant %s", err, test.want)
			}
		})
	}
}

// M5: of two managers with one address, the second returns an error.
func TestTwoManagersOnOneAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	one := newManager(newAPI(), nil)
	addServer(one, serverOptions{Listener: l})
	one.AddEverywhere("other", func(ctx context.Context) error {
		two := newManager(newAPI(), nil)
		addServer(two, serverOptions{Address: l.Addr().String()})
		return two.Run(ctx)
	})
	wantParts(t, one.Run(t.Context()), "other: ", l.Addr().String()+" is taken")
}

// During a stop under load, HTTP/1.1 and HTTP/2 requests are answered completely or refused.
func TestM1_AStopUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, health, server := serving(t, newAPI(), nil)
		s.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half ")
			time.Sleep(rand.N(3 * time.Second))
			fmt.Fprint(w, "and half")
		}))
		stop, result := start(t, m)
		var traffic sync.WaitGroup
		var answered, refused atomic.Int32
		hammer := func(c *http.Client, url, want string) {
			for {
				switch status, body := get(t, c, url); {
				case status == 200 && body == want:
					answered.Add(1)
				case status == 0 && strings.Contains(body, errUnplugged.Error()):
					refused.Add(1)
					return
				default:
					t.Errorf("%s is answered with %d %s", url, status, body)
					return
				}
			}
		}
		for range 20 {
			traffic.Go(func() { hammer(server, "https://x/slow", "half and half") })
			traffic.Go(func() { hammer(plain(server), "https://x/slow", "half and half") })
		}
		traffic.Go(func() {
			for {
				if status, _ := get(t, health, "http://x/livez"); status != 200 {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		testkit.Pass(10 * time.Second)
		began := time.Now()
		stop()
		ok(t, result())
		// On a pipe, TLS's close message may wait for 5 s.
		testkit.AtMost(t, time.Since(began), 10*time.Second)
		traffic.Wait()
		testkit.Equal(t, refused.Load(), 40)
		testkit.AtLeast(t, answered.Load(), 40)
	})
}

// A client that does not read its answer delays a stop by the grace time at most.
func TestM3_AClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, secure := range []bool{false, true} {
			w := newWire()
			m := newManager(newAPI(), func(o *manager.Options) {
				o.Grace = 10 * time.Second
			})
			if secure {
				addServer(m, serverOptions{Listener: w})
			} else {
				addHealth(m, serverOptions{Listener: w})
			}
			stop, result := start(t, m)
			conn, err := w.dial(t.Context(), "", "")
			testkit.NoError(t, err)
			if secure {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // self-signed
			}
			testkit.NoError(t, testkit.Err(fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")))
			testkit.Pass(time.Second)
			began := time.Now()
			stop()
			ok(t, result())
			testkit.AtMost(t, time.Since(began), 10*time.Second+250*time.Millisecond)
			conn.Close()
		}
	})
}

// TestM3_AMistakeOfHandleWhileARequestIsInFlight: the manager stops, and the request has the grace
// time.
func TestM3_AMistakeOfHandleWhileARequestIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _, server := serving(t, newAPI(), nil)
		h := newHeld()
		s.Handle("/held", h)
		_, result := start(t, m)
		answer := fetch(t, server, "https://x/held")
		<-h.came
		s.Handle("/late", nil)
		testkit.Pass(10 * time.Second)
		close(h.free)
		testkit.Equal(t, <-answer, "done", "the request is answered with")
		wantParts(t, result(), `the server on wire: Handle: the handler of "/late" is nil`)
	})
}

func TestAddServer_AfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		m := newManager(newAPI(), func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		stop()
		ok(t, result())
		addServer(m, serverOptions{Name: "late server"})
		testkit.Contains(t, log.String(), `added="the late server"`, "nobody learns that the server is not served")
	})
}
