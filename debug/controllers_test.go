// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a controller that is not run.
type fixed struct {
	manager.Controller

	name  string
	state any
	fails []controller.FailedKey
}

func (f fixed) Name() string { return f.name }

func (f fixed) Failing() []controller.FailedKey { return f.fails }

func (f fixed) MarshalJSON() ([]byte, error) { return json.Marshal(f.state) }

func get(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestControllers(t *testing.T) {
	h := debug.Controllers(fixed{name: "website", state: map[string]int{"ready": 3}}, fixed{name: "broken", state: func() {}}, fixed{name: "blog"})

	var names []string
	testkit.NoError(t, json.Unmarshal(get(t, h, "GET", "/").Body.Bytes(), &names))
	testkit.Equal(t, strings.Join(names, " "), "blog broken website")
	var state map[string]int
	w := get(t, h, "GET", "/website")
	testkit.NoError(t, json.Unmarshal(w.Body.Bytes(), &state), "GET /website")
	testkit.Equal(t, state["ready"], 3, "GET /website")
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/unknown", http.StatusNotFound, `"website"`},
		{"GET", "/no/body", http.StatusNotFound, `"website"`},
		{"GET", "/broken", http.StatusInternalServerError, "JSON"},
		{"POST", "/website", http.StatusMethodNotAllowed, ""},
	} {
		if w := get(t, h, c.method, c.path); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %q, want %d and a sentence with %q", c.method, c.path, w.Code, w.Body, c.status, c.says)
		}
	}
}
