// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

func loggingTo(out *testkit.Buffer) func(*manager.Options) {
	return func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(out, nil)) }
}

func wantLines(t *testing.T, out *testkit.Buffer, lines ...string) {
	t.Helper()
	for _, line := range lines {
		testkit.Len(t, regexp.MustCompile("(?m)^time=\\S+ "+line+"$").FindAllString(out.String(), -1), 1, line, out)
	}
}

// TestLog_StartAndStop: an operator without work logs what runs, where, and why it stopped.
func TestLog_StartAndStop(t *testing.T) {
	for name, test := range map[string]struct {
		option func(*manager.Options)
		lease  string
	}{"elected": {elected, " lease=default/operator"}, "alone": {func(*manager.Options) {}, ""}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				m := newManager(newAPI(), func(o *manager.Options) {
					test.option(o)
					loggingTo(&out)(o)
				})
				configMaps(m, "website", idle)
				stop, result := start(t, m)
				testkit.Pass(time.Minute)
				stop()
				ok(t, result())
				wantLines(
					t, &out,
					`level=INFO msg=started name=test version=\S+ setpoint=\S+ server=`+sim.Host+` serverVersion=v1\.\d+\.\d+\S*`+test.lease,
					`level=INFO msg=watching controller=website sources=Kind\(ConfigMap\.v1\)`,
				)
				last := `msg=stopped cause="context canceled" ran=1m0s` + "\n"
				if !strings.HasSuffix(out.String(), last) {
					t.Errorf("the last line is not %s:\n%s", last, out.String())
				}
			})
		})
	}
}

// TestLog_AStopAfterAFailure has the error that Run returns. A manager with mistakes in its wiring
// has neither started nor stopped.
func TestLog_AStopAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		m := newManager(newAPI(), loggingTo(&out))
		m.AddEverywhere("fails", func(context.Context) error {
			time.Sleep(2 * time.Second)
			return errors.New("no disk")
		})
		err := m.Run(t.Context())
		wantLines(t, &out, `level=ERROR msg=stopped err="`+err.Error()+`" ran=2s`)
		m = newManager(newAPI(), loggingTo(&out))
		m.AddEverywhere("", nil)
		testkit.NotEqual(t, m.Run(t.Context()), nil)
		testkit.Count(t, out.String(), "msg=stopped", 1)
	})
}

// TestLog_AnAPIServerWithoutAVersion: the line has the other attributes, and the start does not
// wait.
func TestLog_AnAPIServerWithoutAVersion(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(r *sim.Request) (*http.Response, error)
		err    string
	}{
		"no answer": {(*sim.Request).Hang, `".*context deadline exceeded.*"`},
		"refused":   {func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no") }, `Forbidden`},
		"busy":      {func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusTooManyRequests, "later") }, `TooManyRequests`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				api := newAPI()
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != "discover" || r.Resource.Version != "" {
						return nil, nil
					}
					return test.answer(r)
				})
				m := newManager(api, loggingTo(&out))
				configMaps(m, "website", idle)
				stop, result := start(t, m)
				testkit.Pass(time.Second)
				testkit.Equal(t, isReady(m), true, "it is not ready after a second")
				testkit.Pass(2 * time.Second)
				wantLines(t, &out, `level=INFO msg=started name=test .* serverVersion=unknown err=`+test.err)
				stop()
				ok(t, result())
			})
		})
	}
}

// TestM1_AStopWhileTheRequestForTheVersionHangs: such a request ends neither the start nor Run. The
// error of the stop names it.
func TestM1_AStopWhileTheRequestForTheVersionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		d := newDeaf(newAPI())
		d.of = "/version"
		d.on.Store(true)
		m := newManager(d, loggingTo(&out))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		wantLines(t, &out, `level=INFO msg=started name=test .* serverVersion=unknown err="no answer to a request for the API server's version .*"`)
		testkit.Equal(t, isReady(m), true, out.String())
		testkit.NotContains(t, out.String(), "stopp")
		stop()
		testkit.ErrorContains(t, result(), "a request for the API server's version has not returned", "Run returned")
		d.mend()
		synctest.Wait()
	})
}
