// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

func began() time.Time { return time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC) }

// failed is a key that failed some seconds after began.
func failed(key string, reason why.Reason, seconds int) controller.FailedKey {
	return controller.FailedKey{
		Key: key, Attempts: 2, Failure: controller.Failure{At: began().Add(time.Duration(seconds) * time.Second), Err: "boom", Reason: reason, ReconcileID: "1-2"},
	}
}

func many(n int) (keys []controller.FailedKey) {
	for i := range n {
		keys = append(keys, failed(fmt.Sprint("key-", i), why.Error, 100+i))
	}
	return keys
}

// TestFailing_OneKey: the answer has all that is known, as the doc has it.
func TestFailing_OneKey(t *testing.T) {
	k := failed("default/shop", why.Forbidden, 12)
	k.Next = began().Add(16 * time.Second)
	w := get(t, debug.Failing(fixed{name: "website", fails: []controller.FailedKey{k}}), "GET", "/")
	const want = `{
  "keys": [
    {
      "controller": "website",
      "key": "default/shop",
      "reason": "Forbidden",
      "error": "boom",
      "at": "2026-11-29T08:00:12Z",
      "attempts": 2,
      "next": "2026-11-29T08:00:16Z",
      "terminal": false,
      "reconcileID": "1-2"
    }
  ],
  "total": 1
}
`
	testkit.Equal(t, w.Body.String(), want)
}

// TestFailing_Selects: parameters select keys, and the oldest failures come first.
func TestFailing_Selects(t *testing.T) {
	blog := fixed{name: "blog", fails: []controller.FailedKey{failed("b", why.Forbidden, 3), failed("a", why.Terminal, 1), failed("c", why.Error, 3)}}
	site := fixed{name: "website", fails: append(many(1200), failed("first", why.Forbidden, 2), failed("b", why.Error, 3))}
	h := debug.Failing(site, blog, fixed{name: "quiet"})
	for query, want := range map[string]struct {
		first       string
		keys, total int
	}{
		"":                                   {"blog/a website/first blog/b blog/c website/b website/key-0", 100, 1205},
		"?limit=2":                           {"blog/a website/first", 2, 1205},
		"?limit=1000":                        {"blog/a", 1000, 1205},
		"?controller=blog":                   {"blog/a blog/b blog/c", 3, 3},
		"?reason=forbidden":                  {"website/first blog/b", 2, 2},
		"?reason=Error&controller=blog":      {"blog/c", 1, 1},
		"?reason=Conflict":                   {"", 0, 0},
		"?controller=quiet":                  {"", 0, 0},
		"?controller=website&reason=&limit=": {"website/first website/b website/key-0", 100, 1202},
	} {
		w := get(t, h, "GET", "/"+query)
		var got struct {
			Keys  []struct{ Controller, Key string }
			Total int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%q: %d, %v in %s", query, w.Code, err, w.Body)
		}
		order := ""
		for _, k := range got.Keys {
			order += k.Controller + "/" + k.Key + " "
		}
		if !strings.HasPrefix(order, want.first) || len(got.Keys) != want.keys || got.Total != want.total {
			t.Errorf("%q: %d of %d, first %.80s", query, len(got.Keys), got.Total, order)
		}
		testkit.NotContains(t, w.Body.String(), `"keys": null`, query)
	}
}

// TestBadRequests: each is answered with one sentence that has a remedy.
func TestBadRequests(t *testing.T) {
	m := newManager(t, nil)
	m.Add(controller.New[string]("website", nil, controller.Options{}))
	h := debug.Handler(m, debug.Options{})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/debug/failing?limit=0":             {http.StatusBadRequest, "limit=0 is invalid; use a number from 1 to 1000"},
		"/debug/failing?limit=1001":          {http.StatusBadRequest, "limit=1001 is invalid; use a number from 1 to 1000"},
		"/debug/failing?limit=ten":           {http.StatusBadRequest, "limit=ten is invalid; use a number from 1 to 1000"},
		"/debug/failing?limit=1&limit=2":     {http.StatusBadRequest, "the parameter limit has 2 values; give one"},
		"/debug/failing?resaon=Error":        {http.StatusBadRequest, `the parameter "resaon" is unknown; use controller, reason, limit`},
		"/debug/failing?reason=%zz":          {http.StatusBadRequest, `the query cannot be read: invalid URL escape "%zz"; encode the values`},
		"/debug/failing?controller=web":      {http.StatusNotFound, `no controller is named "web"; there are ["website"]`},
		"/debug/controllers/web":             {http.StatusNotFound, `no controller is named "web"; there are ["website"]`},
		"/debug/why":                         {http.StatusBadRequest, "the parameter kind is missing; use for example ?kind=Website&namespace=default&name=shop"},
		"/debug/why?kind=Website":            {http.StatusBadRequest, "the parameter name is missing; use for example ?kind=Website&namespace=default&name=shop"},
		"/debug/why?kind=&name=shop":         {http.StatusBadRequest, "the parameter kind is missing; use for example ?kind=Website&namespace=default&name=shop"},
		"/debug/why?kind=Website&ns=default": {http.StatusBadRequest, `the parameter "ns" is unknown; use kind, namespace, name`},
		"/debug/nothing":                     {http.StatusNotFound, `there is nothing at "/debug/nothing"; see /debug/, /debug/why, /debug/trace, /debug/failing, /debug/controllers/, /debug/informers/, /debug/shards/, /debug/rbac and /debug/pprof/`},
		"/debug/page/page.js":                {http.StatusNotFound, `there is nothing at "/debug/page/page.js"; see /debug/, /debug/why, /debug/trace, /debug/failing, /debug/controllers/, /debug/informers/, /debug/shards/, /debug/rbac and /debug/pprof/`},
	} {
		if w := get(t, h, "GET", path); w.Code != want.status || w.Body.String() != want.text+"\n" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	for _, path := range []string{"/debug/why", "/debug/failing"} {
		if w := get(t, h, "POST", path); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d %v", path, w.Code, w.Header())
		}
	}
	var none []manager.Controller
	testkit.Equal(t, get(t, debug.Failing(none...), "GET", "/").Body.String(), "{\n  \"keys\": [],\n  \"total\": 0\n}\n", "no controllers")
}
