// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

// reviewer is an API server that only reviews.
type reviewer struct {
	mu        sync.Mutex        // guards the fields below
	users     map[string]string // by token
	allowed   map[string]bool   // "user verb path"
	every     bool              // allows everything
	audiences []string          // of its tokens
	fail      func(*http.Request) (*http.Response, error)
	asked     []string
	access    []authorizationv1.SubjectAccessReviewSpec
	at        int // reviews in progress
	most      int
}

func newReviewer() *reviewer {
	return &reviewer{users: map[string]string{"good": "prometheus", "other": "somebody"}, allowed: map[string]bool{"prometheus get /metrics": true}}
}

func (v *reviewer) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.at++
	v.most = max(v.most, v.at)
	v.asked = append(v.asked, r.Method+" "+r.URL.Path)
	fail := v.fail
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.at--
	}()
	if fail != nil {
		if resp, err := fail(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return v.review(body)
}

func (v *reviewer) review(body []byte) (*http.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	switch review := sent.(type) {
	case *authenticationv1.TokenReview:
		user, known := v.users[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{
			Username: user, UID: "uid of " + user, Groups: []string{"group"}, Extra: map[string]authenticationv1.ExtraValue{"key": {"a", "b"}},
		}}
		for _, a := range review.Spec.Audiences {
			if slices.Contains(v.audiences, a) {
				review.Status.Audiences = append(review.Status.Audiences, a)
			}
		}
		return answer(http.StatusCreated, review)
	case *authorizationv1.SubjectAccessReview:
		v.access = append(v.access, review.Spec)
		about := review.Spec.NonResourceAttributes
		review.Status.Allowed = v.every || v.allowed[fmt.Sprintf("%s %s %s", review.Spec.User, about.Verb, about.Path)]
		return answer(http.StatusCreated, review)
	}
	return answer(http.StatusNotFound, &metav1.Status{Code: http.StatusNotFound})
}

func answer(code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data))}, err
}

// count returns the number of reviews of each kind since its last call.
func (v *reviewer) count() (tokens, access int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range v.asked {
		if strings.HasSuffix(a, "/tokenreviews") {
			tokens++
		} else {
			access++
		}
	}
	v.asked = nil
	return tokens, access
}

func (v *reviewer) set(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

// guarded is a handler behind Authorize.
func guarded(v *reviewer, audiences ...string) http.Handler {
	m := newManager(v, func(o *manager.Options) {
		elected(o)
		o.RequireTerm = true // reviews have no term
	})
	return addServer(m, serverOptions{Audiences: audiences}).Authorize(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("User", server.UserFromContext(r.Context()))
		fmt.Fprint(w, "let through")
	}))
}

// logged is a handler whose requests have a logger, as in a server.
func logged(h http.Handler, to io.Writer) http.Handler {
	log := slog.New(slog.NewTextHandler(to, nil))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(logr.NewContextWithSlogLogger(r.Context(), log)))
	})
}

func request(ctx context.Context, method, path, authorization string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func serve(h http.Handler, r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestAuthorize(t *testing.T) {
	const refused = "send the token of a ServiceAccount: Authorization: Bearer TOKEN"
	for name, test := range map[string]struct {
		method, path, authorization string
		audiences                   []string
		status                      int
		body                        string
		reviews                     int
	}{
		"allowed":          {"GET", "/metrics", "Bearer good", nil, 200, "let through", 2},
		"in lower case":    {"GET", "/metrics?x=y", "bearer  good ", nil, 200, "let through", 2},
		"for an audience":  {"GET", "/metrics", "Bearer good", []string{"us", "them"}, 200, "let through", 2},
		"for another":      {"GET", "/metrics", "Bearer good", []string{"them"}, 401, "the token is not valid here", 1},
		"no token":         {"GET", "/metrics", "", nil, 401, refused, 0},
		"an empty token":   {"GET", "/metrics", "Bearer ", nil, 401, refused, 0},
		"another scheme":   {"GET", "/metrics", "Basic good", nil, 401, refused, 0},
		"an unknown token": {"GET", "/metrics", "Bearer bad", nil, 401, "the token is not valid here", 1},
		"another user":     {"GET", "/metrics", "Bearer other", nil, 403, "somebody may not get /metrics: bind a ClusterRole with that verb on this nonResourceURL", 2},
		"another path":     {"GET", "/metrics/more", "Bearer good", nil, 403, "prometheus may not get /metrics/more: bind a ClusterRole with that verb on this nonResourceURL", 2},
		"another method":   {"POST", "/metrics", "Bearer good", nil, 403, "prometheus may not post /metrics: bind a ClusterRole with that verb on this nonResourceURL", 2},
	} {
		t.Run(name, func(t *testing.T) {
			v := newReviewer()
			v.audiences = []string{"us"}
			h := guarded(v, test.audiences...)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(t.Context(), test.method, test.path, test.authorization))
			testkit.Equal(t, w.Code, test.status)
			testkit.Equal(t, strings.TrimSpace(w.Body.String()), test.body)
			testkit.Equal(t, w.Header().Get("WWW-Authenticate") == `Bearer realm="kubernetes"`, test.status == 401)
			testkit.Equal(t, w.Header().Get("User") == "prometheus", test.status == 200)
			tokens, access := v.count()
			testkit.Equal(t, tokens+access, test.reviews, fmt.Sprintf("%d and %d reviews", tokens, access))
			if test.reviews < 2 {
				return
			}
			s := v.access[0]
			if s.UID != "uid of "+s.User || !slices.Equal(s.Groups, []string{"group"}) || !slices.Equal(s.Extra["key"], []string{"a", "b"}) || s.ResourceAttributes != nil {
				t.Errorf("asked about %v", s)
			}
		})
	}
}

// Concurrent requests cost one review together with all requests of the next minute.
func TestAuthorizeRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReviewer()
		v.fail = func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return nil, nil
		}
		h := guarded(v)
		storm := func(authorization string, want, reviews int) {
			t.Helper()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if status, body := serve(h, request(t.Context(), "GET", "/metrics", authorization)); status != want {
						t.Errorf("%d %s, want %d", status, body, want)
					}
				})
			}
			all.Wait()
			tokens, access := v.count()
			testkit.Equal(t, tokens+access, reviews, fmt.Sprintf("%d and %d reviews", tokens, access))
		}
		storm("Bearer good", 200, 2)
		v.set(func() { delete(v.users, "good") })
		time.Sleep(59 * time.Second)
		storm("Bearer good", 200, 0)
		time.Sleep(time.Second + 1)
		storm("Bearer good", 401, 1)
		v.set(func() { v.users["good"] = "prometheus" })
		time.Sleep(4 * time.Second)
		storm("Bearer good", 401, 0)
		time.Sleep(time.Second + 1)
		storm("Bearer good", 200, 2)
	})
}

// Without an answer of the API server, a request is refused and the next one asks again.
func TestAuthorizeWithoutAnAPIServer(t *testing.T) {
	forbidden := func(*http.Request) (*http.Response, error) {
		return answer(http.StatusForbidden, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "no right"})
	}
	for name, test := range map[string]struct {
		fail  func(*http.Request) (*http.Response, error)
		takes time.Duration
		log   string
	}{
		"refused": {func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, 0, `msg="requests cannot be authorized" err="TokenReview: Post`},
		"hangs": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 5 * time.Second, `msg="requests cannot be authorized" err="TokenReview: `},
		"forbidden": {forbidden, 0, `msg="requests cannot be authorized; bind this program's ServiceAccount to the ClusterRole system:auth-delegator" err="TokenReview: no right"`},
		"forbidden halfway": {func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
				return nil, nil
			}
			return forbidden(r)
		}, 0, `err="SubjectAccessReview: no right"`},
		"an error": {func(*http.Request) (*http.Response, error) { return answer(http.StatusInternalServerError, "broken") }, 0, `msg="requests cannot be authorized" err="TokenReview: `},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				v := newReviewer()
				v.fail = test.fail
				h := logged(guarded(v), &log)
				for range 2 {
					began := time.Now()
					if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 503 || body != "the API server cannot authorize requests now; see the log" {
						t.Errorf("%d %s", status, body)
					}
					testkit.Equal(t, time.Since(began), test.takes)
				}
				testkit.Count(t, log.String(), test.log, 1)
				v.set(func() { v.fail = nil })
				if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 200 {
					t.Errorf("%d %s", status, body)
				}
				testkit.Contains(t, log.String(), "requests can be authorized again")
			})
		})
	}
}

// If the client that started a review disconnects, the other requests still get an answer.
func TestAuthorizeForSomebodyWhoGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReviewer()
		v.fail = func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(time.Second):
				return nil, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		h := guarded(v)
		impatient, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if status, body := serve(h, request(impatient, "GET", "/metrics", "Bearer good")); status != 503 {
				t.Errorf("%d %s", status, body)
			}
		})
		synctest.Wait()
		for range 10 {
			all.Go(func() {
				if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 200 {
					t.Errorf("%d %s", status, body)
				}
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		if tokens, access := v.count(); tokens != 2 || access != 1 {
			t.Errorf("%d and %d reviews", tokens, access)
		}
	})
}

// A handler, or a proxy behind it, could mistake these paths for others than the reviewed one.
func TestAuthorizeRefusesAmbiguousRequests(t *testing.T) {
	v := newReviewer()
	v.every = true
	h := guarded(v)
	const dots, encoded, control = "send a path without . and ..", "send a path that is encoded once: without % after decoding", "send a path of UTF-8 without control characters"
	for _, test := range []struct{ method, path, body string }{
		{"GeT", "/metrics", "send the method in upper case"},
		{"get", "/metrics", "send the method in upper case"},
		{"GET", "/public/..;/secret", dots},
		{"GET", "/public/..;x=y/secret", dots},
		{"GET", "/public/.;/secret", dots},
		{"GET", "/public/%2e%2e;/secret", dots},
		{"GET", "/public/..%20/secret", dots},
		{"GET", "/public/..%5csecret", `send a path without \`},
		{"GET", "/public/%00", control},
		{"GET", "/public/..%00/secret", control},
		{"GET", "/public/%0d%0a", control},
		{"GET", "/public/%c0%ae%c0%ae/secret", control},
		{"GET", "/public/%252e%252e/secret", encoded},
		{"GET", "/public/%25252e%25252e/secret", encoded},
		{"GET", "/public/..%252fsecret", encoded},
		{"GET", "/public/%25u002e", encoded},
		{"OPTIONS", "*", "send a path that begins with /"},
	} {
		if status, body := serve(h, request(t.Context(), test.method, test.path, "Bearer good")); status != 400 || body != test.body {
			t.Errorf("%s %s: %d %s, want 400 %s", test.method, test.path, status, body, test.body)
		}
	}
	tokens, access := v.count()
	testkit.Equal(t, tokens+access, 0, fmt.Sprintf("%d and %d reviews", tokens, access))
	for _, path := range []string{"/public/a;b", "/public/a..", "/public/...", "/public/%2fa", "/public/%C3%A4", "/"} {
		if status, body := serve(h, request(t.Context(), "GET", path, "Bearer good")); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// A permission for /public/ gives no access to other paths, even if a handler cleans paths.
func TestAuthorizeLeavesNoWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReviewer()
		v.every = true // like a rule for /public/*
		m, s, _, c := serving(t, v, nil)
		s.Handle("/", s.Authorize(http.FileServerFS(fstest.MapFS{"public/a": {Data: []byte("public")}, "secret": {Data: []byte("secret")}})))
		stop, result := start(t, m)
		for path, status := range map[string]int{
			"/public/a": 200, "/public/a..": 404, "/public/%2e%2e/secret": 400, "/public/..%2fsecret": 400, "/public%2f..%2fsecret": 400, "/public/%2e%2e": 400,
		} {
			r := request(t.Context(), "GET", "https://x"+path, "Bearer good")
			r.RequestURI = ""
			resp, err := c.Do(r)
			testkit.NoError(t, err)
			resp.Body.Close()
			testkit.Equal(t, resp.StatusCode, status, path, resp.Status)
		}
		stop()
		ok(t, result())
	})
}
