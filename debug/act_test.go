// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// post sends JSON, with pairs of header fields and values.
func post(t *testing.T, h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(logr.NewContextWithSlogLogger(r.Context(), slog.New(slog.DiscardHandler))))
	return w
}

// TestActions: POST requests requeue, pause and resume a key. Its text may be HTML.
func TestActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		defer api.Close()
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}})
		m := newManager(t, api)
		failingMaps(m, "website")
		h := debug.Handler(m, debug.Options{Actions: true})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		const key = `{"controller": "website", "key": "<script>shop"}`
		for _, step := range []struct {
			action, body string
			code         int
			want         string
			reconciles   uint64
		}{
			{"requeue", key, http.StatusOK, `"result": "\u003cscript\u003eshop is due now"`, 2},
			{"pause", key, http.StatusOK, `"result": "\u003cscript\u003eshop is paused until it is resumed here`, 2},
			{"requeue", key, http.StatusOK, `is due when its pause ends; it is paused by debug page (over HTTP since `, 2},
			{"resume", key, http.StatusOK, `"result": "\u003cscript\u003eshop is resumed"`, 3},
			{"resume", key, http.StatusConflict, `controller "website": <script>shop is not paused; requeue makes it due`, 3},
			{"requeue", `{"controller": "website", "key": "shop"}`, http.StatusConflict, `no key "shop" is queued, in progress, failing or remembered; `, 3},
			{"requeue", `{"controller": "web", "key": "shop"}`, http.StatusNotFound, `no controller is named "web"; there are ["website"]`, 3},
		} {
			w := post(t, h, "/debug/"+step.action, step.body)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := m.Controllers()[0].Report().Took.Count(); w.Code != step.code || !strings.Contains(w.Body.String(), step.want) || got != step.reconciles || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: %d %s\nwant %d %s\nand %d Reconciles, want %d", step.action, step.body, w.Code, w.Body, step.code, step.want, got, step.reconciles)
			}
		}
		w := get(t, h, "GET", "/debug/why?controller=website&key=%3Cscript%3Eshop")
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, `"key": "\u003cscript\u003eshop"`) || !strings.Contains(body, "because of requeue") || strings.Contains(body, "<") {
			t.Errorf("why: %d %s", w.Code, body)
		}
		for query, want := range map[string]string{
			"controller=website&key=x": `no key "x" is queued, in progress, failing or remembered; use the text of a key of /debug/keys`, "key=x": `no controller is named ""; there are ["website"]`,
			"controller=website&key=x&kind=y": `the parameter "kind" is unknown; use controller, key`,
		} {
			if w := get(t, h, "GET", "/debug/why?"+query); w.Code < 400 || w.Body.String() != want+"\n" {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
		}
		stop()
		testkit.Equal(t, <-ended, nil)
	})
}

// TestActions_RefusesOtherRequests: by default all, else requests of another site, and requests
// that a form of another site could send.
func TestActions_RefusesOtherRequests(t *testing.T) {
	m := newManager(t, nil)
	failingMaps(m, "website")
	on, off := debug.Handler(m, debug.Options{Actions: true}), debug.Handler(m, debug.Options{})
	const key = `{"controller": "website", "key": "shop"}`
	for _, action := range []string{"requeue", "pause", "resume"} {
		path := "/debug/" + action
		example := `send {"controller": "website", "key": "default/shop"} as application/json to ` + path + "\n"
		for name, c := range map[string]struct {
			got  *httptest.ResponseRecorder
			code int
			want string
		}{
			"off":           {post(t, off, path, key), http.StatusForbidden, "actions are off; set debug.Options.Actions, or an annotation of the object: setpoint.dev/requeue or setpoint.dev/paused\n"},
			"GET":           {get(t, on, "GET", path), http.StatusMethodNotAllowed, "use the method POST, and " + example},
			"PUT":           {get(t, on, "PUT", path), http.StatusMethodNotAllowed, "use the method POST, and " + example},
			"cross-site":    {post(t, on, path, key, "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "the request comes from a page of another site (cross-site); open /debug/ itself\n"},
			"same-site":     {post(t, on, path, key, "Sec-Fetch-Site", "same-site"), http.StatusForbidden, "the request comes from a page of another site (same-site); open /debug/ itself\n"},
			"form":          {post(t, on, path, "controller=website&key=shop", "Content-Type", "application/x-www-form-urlencoded"), http.StatusUnsupportedMediaType, example},
			"text":          {post(t, on, path, key, "Content-Type", "text/plain; charset=application/json"), http.StatusUnsupportedMediaType, example},
			"no type":       {post(t, on, path, key, "Content-Type", ""), http.StatusUnsupportedMediaType, example},
			"no JSON":       {post(t, on, path, "shop"), http.StatusBadRequest, "the request names no controller and key; " + example},
			"no key":        {post(t, on, path, `{"controller": "website"}`), http.StatusBadRequest, "the request names no controller and key; " + example},
			"unknown field": {post(t, on, path, `{"controller": "website", "key": "shop", "all": true}`), http.StatusBadRequest, "the request names no controller and key; " + example},
			"long":          {post(t, on, path, `{"controller": "website", "key": "`+strings.Repeat("x", 20_000)+`"}`), http.StatusBadRequest, "the request names no controller and key; " + example},
			"not started":   {post(t, on, path, key, "Sec-Fetch-Site", "same-origin"), http.StatusConflict, `controller "website": the controller does not run yet; start its manager with Run` + "\n"},
		} {
			if c.got.Code != c.code || c.got.Body.String() != c.want {
				t.Errorf("%s, %s: %d %s\nwant %d %s", action, name, c.got.Code, c.got.Body, c.code, c.want)
			}
		}
	}
}
