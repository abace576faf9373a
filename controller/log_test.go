// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
)

// TestLoggers shows that each of the three logging APIs gets the Reconcile's logger from its
// context, whichever of the three is underneath. zap is one of the loggers below logr and slog.
func TestLoggers(t *testing.T) {
	text := func(to *testkit.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
	lines := func(to *testkit.Buffer) logr.Logger {
		return funcr.New(func(prefix, args string) { _, _ = to.Write([]byte(prefix + args + "\n")) }, funcr.Options{})
	}
	for name, base := range map[string]func(*testkit.Buffer, context.Context) (context.Context, *slog.Logger){
		"slog in Options": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) { return ctx, text(to) },
		"logr in Options": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			return ctx, slog.New(logr.ToSlogHandler(lines(to)))
		},
		"slog in the context": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			return logr.NewContextWithSlogLogger(ctx, text(to)), nil
		},
		"logr in the context": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			return logr.NewContext(ctx, lines(to)), nil
		},
		"klog's in the context": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			return klog.NewContext(ctx, lines(to)), nil
		},
		"Options before context": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			return logr.NewContextWithSlogLogger(ctx, text(&testkit.Buffer{})), text(to)
		},
		"slog's default": func(to *testkit.Buffer, ctx context.Context) (context.Context, *slog.Logger) {
			slog.SetDefault(text(to))
			return ctx, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slog.Default()
			defer slog.SetDefault(before)
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				ctx, cancel := context.WithCancel(t.Context())
				ctx, logger := base(&out, ctx)
				c := controller.New("website", controller.Func[string](func(ctx context.Context, _ string) (controller.Result, error) {
					klog.FromContext(ctx).Info("through klog", "port", 80)
					logr.FromContextOrDiscard(ctx).Info("through logr", "port", 80)
					controller.Logger(ctx).Info("through slog", "port", 80)
					return controller.Result{}, nil
				}), controller.Options{Logger: logger})
				c.Watch(newSource("keys", "example"))
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				synctest.Wait()
				cancel()
				ok(t, <-done)
				seen := 0
				want := regexp.MustCompile("controller=website key=example attempt=1 reconcileID=[0-9a-f]{8}-1 class=background port=80")
				for line := range strings.Lines(strings.ReplaceAll(out.String(), `"`, "")) {
					if strings.Contains(line, "through "+[]string{"klog", "logr", "slog"}[seen]) && want.MatchString(line) {
						seen++
					}
				}
				testkit.Equal(t, seen, 3, &out)
			})
		})
	}
}

// TestLogger_IsNeverNil: outside a Reconcile it is the context's logger, or the default.
func TestLogger_IsNeverNil(t *testing.T) {
	testkit.Equal(t, controller.Logger(t.Context()), slog.Default(), "without a logger in the context")
	var out testkit.Buffer
	ctx := logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
	controller.Logger(ctx).Info("through the context")
	testkit.Contains(t, out.String(), "through the context", "the context's logger got")
}

// TestJSONLogsAreText: keys and durations are strings in every line.
func TestJSONLogsAreText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		n := 0
		reconcile := func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			if n++; n == 1 {
				return controller.Result{}, errFlaky
			}
			controller.Logger(ctx).Info("from a Reconcile")
			time.Sleep(90 * time.Second)
			return controller.Result{}, nil
		}
		c := controller.New("test", controller.Func[types.NamespacedName](reconcile), controller.Options{Logger: slog.New(slog.NewJSONHandler(&out, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		c.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
		time.Sleep(80 * time.Second)
		cancel()
		ok(t, <-ended)
		found := map[string]string{}
		for line := range strings.Lines(out.String()) {
			var attributes map[string]any
			ok(t, json.Unmarshal([]byte(line), &attributes))
			for name, value := range attributes {
				switch value := value.(type) {
				case string:
					found[name+" of "+attributes["msg"].(string)] = value
				case float64:
					if name != "attempt" {
						t.Errorf("%s is the number %v in %s", name, value, line)
					}
				default:
					t.Errorf("%s is %v in %s", name, value, line)
				}
			}
		}
		for name, want := range map[string]string{
			"key of from a Reconcile": "default/a", "key of reconcile failed": "default/a", "retryAfter of reconcile failed": "5ms",
			"key of reconcile is slow": "default/a", "took of reconcile is slow": "1m0s",
		} {
			testkit.Equal(t, found[name], want, name)
		}
	})
}

func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		c, _ := settling(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))}, fails, explode)
		c.Watch(&failingHandler{newSource("handled"), errors.New("no owner")})
		c.Watch(&failingHandler{newSource("early"), fmt.Errorf("no scope: %w", cache.ErrNotSynced)})
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		for _, want := range []string{
			`level=ERROR msg="reconcile failed" controller=test key=a attempt=1 reconcileID=\w+-1 class=\w+ err="the network is down" retryAfter=5ms`,
			`level=ERROR msg="reconcile panicked" controller=test key=a attempt=2 reconcileID=\w+-2 class=\w+ err="panic: boom" retryAfter=10ms stack="goroutine .*settle_test.go`,
			`level=ERROR msg="handler failed; the event will be retried" controller=test source=Fake\(handled\) object=default/x err="no owner"`,
			`level=INFO msg="the handler waits for another kind; the event will be retried" controller=test source=Fake\(early\) object=default/x err="no scope: not synced"`,
		} {
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("the log has no %s\n%s", want, out.String())
			}
		}
	})
}

// TestManyFailuresAreFewLines: the log has ten, then one in ten seconds with the number left out.
func TestManyFailuresAreFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		c, _ := settling(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		handled := newSource("handled")
		c.Watch(&failingHandlers{handled, 100, time.Second})
		stop := start(t, c)
		time.Sleep(30500 * time.Millisecond)
		ok(t, stop())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")[2:]
		if len(lines) != 13 || strings.Contains(lines[9], "unlogged") || !strings.Contains(lines[10], "unlogged=990") || !strings.Contains(lines[11], "unlogged=999") {
			t.Errorf("the log has %d lines\n%s", len(lines), out.String())
		}
	})
}

// TestLog_AnErrorOfItsOwnHasALine: 200 keys fail for the same reason, and one key for another. Both
// errors are "not found".
func TestLog_AnErrorOfItsOwnHasALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		keys := []string{"prod/own"}
		for n := range 200 {
			keys = append(keys, fmt.Sprintf("team-%c/web-%d", 'a'+n%26, n))
		}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			namespace, name, _ := strings.Cut(key, "/")
			if name == "own" {
				return controller.Result{}, apierrors.NewNotFound(corev1.Resource("secrets"), "shared")
			}
			return controller.Result{}, fmt.Errorf("sync %s: %w", namespace, apierrors.NewNotFound(corev1.Resource("secrets"), name+"-tls"))
		}, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		slices.Reverse(keys) // the own error comes last
		c.Watch(newSource("keys", keys...))
		stop := start(t, c)
		synctest.Wait()
		testkit.Count(t, out.String(), "reconcile failed", 11)
		testkit.Count(t, out.String(), "key=prod/own", 1)
		time.Sleep(30 * time.Second)
		ok(t, stop())
		testkit.AtMost(t, strings.Count(out.String(), "reconcile failed"), 26)
		testkit.Contains(t, out.String(), "unlogged=")
	})
}

// TestLog_FurtherGroupsAreCounted: of 150 keys with an error of their own, 100 have a line at once
// and 50 a minute later. One line counts their errors.
func TestLog_FurtherGroupsAreCounted(t *testing.T) {
	const counts = `level=WARN msg="errors of further groups are counted, not logged" controller=test errors=%d groups=%d key=k`
	for name, test := range map[string]struct {
		last time.Duration
		want string
		keys int
	}{
		"each minute":   {2 * time.Minute, fmt.Sprintf(counts, 100, 50), 150},
		"and at a stop": {time.Second, fmt.Sprintf(counts, 50, 50), 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				var keys []string
				for n := range 150 {
					keys = append(keys, fmt.Sprint("k", n))
				}
				c := newController(func(_ context.Context, key string) (controller.Result, error) {
					return controller.Result{}, controller.RetryAfter(fmt.Errorf("bad value %q", key+"!"+key+"x"), 59500*time.Millisecond)
				}, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
				c.Watch(newSource("keys", keys...))
				stop := start(t, c)
				time.Sleep(test.last)
				ok(t, stop())
				testkit.Count(t, out.String(), test.want, 1)
				testkit.Count(t, out.String(), "further groups", 1)
				keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(out.String(), " key="+key+" attempt=") })
				testkit.Equal(t, len(keys), test.keys, "keys have a line")
			})
		})
	}
}

// failingHandlers reports failures at intervals.
type failingHandlers struct {
	*fakeSource
	number int
	every  time.Duration
}

func (f *failingHandlers) Run(ctx context.Context, to source.Sink[string]) error {
	var failing sync.WaitGroup
	failing.Go(func() {
		for ctx.Err() == nil {
			for range f.number {
				to.Observer.HandlerFailed("default/x", errors.New("no owner"))
			}
			select {
			case <-time.After(f.every):
			case <-ctx.Done():
			}
		}
	})
	defer failing.Wait()
	return f.fakeSource.Run(ctx, to)
}

// TestTheLogSaysThatItWasTheDeadline: the error alone only reports a cancellation.
func TestTheLogSaysThatItWasTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		}, controller.Options{Deadline: 20 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		testkit.Contains(t, out.String(), `err="context canceled" retryAfter=5ms cause="the Reconcile exceeded its deadline of 20s"`)
		ok(t, stop())
	})
}

// failingHandler reports a failure of its handler.
type failingHandler struct {
	*fakeSource
	with error
}

func (f *failingHandler) Run(ctx context.Context, to source.Sink[string]) error {
	to.Observer.HandlerFailed("default/x", f.with)
	return f.fakeSource.Run(ctx, to)
}

// TestSourceHooksAndTheLog: hooks do not replace the log lines.
func TestSourceHooksAndTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		var failed []string
		c, _ := settling(t, controller.Options{
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
			Hook: hook.On(func(f *hook.HandlerFailed) {
				failed = append(failed, f.Controller+" "+f.Source+" "+f.Object+" "+f.Err.Error())
			}),
		})
		c.Watch(&failingHandler{newSource("handled"), errors.New("no owner")})
		stop := start(t, c)
		synctest.Wait()
		ok(t, stop())
		if len(failed) != 1 || failed[0] != c.Name()+" Fake(handled) default/x no owner" || strings.Count(out.String(), "handler failed") != 1 {
			t.Errorf("the hook saw %v, the log has %q", failed, out.String())
		}
	})
}

// TestAFencedRequestIsNormal: when a term ends, requests are refused shortly before the context
// ends. That is logged at level info. A request whose context has no term is logged as an error.
func TestAFencedRequestIsNormal(t *testing.T) {
	for name, test := range map[string]struct {
		with func(context.Context) context.Context
		loud bool
	}{
		"its own context": {func(ctx context.Context) context.Context { return ctx }, false},
		"another context": {func(context.Context) context.Context { return context.Background() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				api := sim.NewServer(sim.Secrets)
				cl, err := client.New(api.Config(), client.Options{RequireTerm: true})
				ok(t, err)
				leading := term.New(term.Token{}, time.Now(), time.Minute)
				c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
					if !test.loud {
						leading.End(errors.New("another replica leads"))
					}
					_, err := client.For[*corev1.Secret](cl).Create(test.with(ctx), &corev1.Secret{ObjectMeta: named("a")})
					testkit.ErrorIs(t, err, term.ErrFenced, "the request gave")
					return controller.Result{RequeueAfter: time.Hour}, err
				}, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
				c.Watch(newSource("keys", "a"))
				ctx, cancel := context.WithCancel(term.With(t.Context(), leading))
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				time.Sleep(time.Minute)
				cancel()
				ok(t, <-ended)
				leading.End(nil)
				testkit.Equal(t, strings.Contains(out.String(), "level=ERROR"), test.loud, out.String())
				testkit.Contains(t, out.String(), "refused by the fence")
			})
		})
	}
}

// TestLog_AnObjectThatWasJustDeleted: a write to it fails, and the event of its deletion is on the
// way. That is logged at level info, five times.
func TestLog_AnObjectThatWasJustDeleted(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "a"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: "1"}}
	for name, test := range map[string]struct {
		of     []sim.Resource
		call   func(ctx context.Context, cl *client.Client) error
		errors int // lines of six
	}{
		"a status": {[]sim.Resource{sim.Pods}, func(ctx context.Context, cl *client.Client) error {
			_, err := client.For[*corev1.Pod](cl).UpdateStatus(ctx, pod)
			return err
		}, 1},
		"a patch": {[]sim.Resource{sim.Pods}, func(ctx context.Context, cl *client.Client) error {
			_, err := client.For[*corev1.Pod](cl).Patch(ctx, key, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			return fmt.Errorf("label it: %w", err)
		}, 1},
		"a deletion beside a conflict": {[]sim.Resource{sim.Pods}, func(ctx context.Context, cl *client.Client) error {
			conflict := apierrors.NewConflict(corev1.Resource("pods"), "b", errors.New("changed"))
			return errors.Join(client.For[*corev1.Pod](cl).Delete(ctx, key), conflict)
		}, 1},
		"an object in a deleted namespace": {[]sim.Resource{sim.Pods, sim.Namespaces}, func(ctx context.Context, cl *client.Client) error {
			_, err := client.For[*corev1.Pod](cl).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gone", Name: "a"}})
			return err
		}, 1},
		"a write beside another error": {[]sim.Resource{sim.Pods}, func(ctx context.Context, cl *client.Client) error {
			return errors.Join(client.For[*corev1.Pod](cl).Delete(ctx, key), errFlaky)
		}, 6},
		"a write of a kind that is not served": {[]sim.Resource{sim.Secrets}, func(ctx context.Context, cl *client.Client) error {
			return kubernetes.NewForConfigOrDie(cl.Config()).CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
		}, 6},
		"a read": {[]sim.Resource{sim.Pods}, func(ctx context.Context, cl *client.Client) error {
			_, err := client.For[*corev1.Pod](cl).GetLive(ctx, key)
			return err
		}, 6},
		"a write with another context": {[]sim.Resource{sim.Pods}, func(_ context.Context, cl *client.Client) error {
			return client.For[*corev1.Pod](cl).Delete(context.Background(), key)
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				api := sim.NewServer(test.of...)
				cl, err := client.New(api.Config(), client.Options{})
				ok(t, err)
				defer cl.Close()
				c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
					err := test.call(ctx, cl)
					testkit.NotEqual(t, err, nil, "the call gave")
					return controller.Result{}, err
				}, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
				c.Watch(newSource("keys", "a"))
				stop := start(t, c)
				time.Sleep(200 * time.Millisecond) // the backoffs sum up to 155 ms, then to 315 ms
				ok(t, stop())
				text := out.String()
				calm, loud := strings.Count(text, `level=INFO msg="reconcile will be retried"`), strings.Count(text, `level=ERROR msg="reconcile failed"`)
				testkit.Equal(t, calm+loud, 6)
				testkit.Equal(t, loud, test.errors)
			})
		})
	}
}
