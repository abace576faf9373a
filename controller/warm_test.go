// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func noting(seen *calls) controller.Func[string] {
	return func(_ context.Context, key string) (controller.Result, error) {
		seen.note(key)
		return controller.Result{}, nil
	}
}

func TestWorkersWaitUntilAllIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(noting(seen), controller.Options{})
		slow, secrets := newSource("slow"), &reads{name: "Secrets", synced: make(chan struct{})}
		slow.hold = make(chan struct{})
		c.Watch(newSource("quick", "a"))
		c.Watch(slow)
		c.Reads(secrets)
		stop := start(t, c)

		time.Sleep(time.Hour)
		close(slow.hold)
		time.Sleep(time.Hour)
		select {
		case <-c.Synced():
			t.Error("synced before what it reads")
		default:
		}
		wantTimes(t, seen)
		close(secrets.synced)
		synctest.Wait()
		select {
		case <-c.Synced():
		default:
			t.Error("not synced")
		}
		wantTimes(t, seen, 2*time.Hour)
		ok(t, stop())
	})
}

// TestALongWaitIsLogged after 10 s, and then each minute.
func TestALongWaitIsLogged(t *testing.T) {
	for name, watch := range map[string]func(*controller.Controller[string]){
		`source=Fake(never) state=`: func(c *controller.Controller[string]) {
			never := newSource("never")
			never.hold = make(chan struct{})
			c.Watch(never)
		},
		`source=Secrets state="not synced"`: func(c *controller.Controller[string]) {
			c.Reads(&reads{name: "Secrets", synced: make(chan struct{})})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines testkit.Buffer
				c := newController(noting(&calls{}), controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
				watch(c)
				stop := start(t, c)
				for _, step := range []struct {
					after time.Duration
					lines int
				}{{9 * time.Second, 0}, {2 * time.Second, 1}, {58 * time.Second, 1}, {2 * time.Second, 2}} {
					time.Sleep(step.after)
					testkit.Count(t, lines.String(), name, step.lines, step)
				}
				ok(t, stop())
			})
		})
	}
}

func TestStopWhileNothingSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newController(noting(&calls{}), controller.Options{})
		never := newSource("never", "a")
		never.hold = make(chan struct{})
		c.Watch(never)
		c.Reads(&reads{name: "Secrets"})
		stop := start(t, c)
		time.Sleep(time.Second)
		ok(t, stop())

		c = newController(noting(&calls{}), controller.Options{})
		c.Reads(&reads{name: "Secrets"})
		stop = start(t, c)
		time.Sleep(time.Second)
		ok(t, stop())
		testkit.Equal(t, time.Since(began), 2*time.Second)
	})
}

// TestWhatCannotStartEndsTheController with an error that has the name once.
func TestWhatCannotStartEndsTheController(t *testing.T) {
	broken, named, ends := newSource("broken"), newSource("named"), newSource("ends")
	broken.broken = errFlaky
	named.broken = errors.New("Fake(named): no such type")
	ends.ends = true
	for name, test := range map[string]struct {
		source *fakeSource
		reads  *reads
		want   string
	}{
		"source":       {source: broken, want: `controller "test": Fake(broken): the network is down`},
		"named source": {source: named, want: `controller "test": Fake(named): no such type`},
		"ended source": {source: ends, want: `controller "test": Fake(ends): the source has ended before it was synced`},
		"reads":        {reads: &reads{name: "Secrets", err: errFlaky}, want: `controller "test": Secrets: the network is down`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newController(noting(&calls{}), controller.Options{})
				c.Watch(newSource("well", "a"))
				if test.source != nil {
					c.Watch(test.source)
				}
				if test.reads != nil {
					c.Reads(test.reads)
				}
				testkit.Equal(t, fmt.Sprint(c.Run(t.Context())), test.want, "Run returned")
			})
		})
	}
}

// wild is a source whose Run does not return normally.
type wild struct {
	*fakeSource
	end func()
}

func (w wild) Run(context.Context, source.Sink[string]) error {
	w.end()
	return nil
}

// TestC5_ASourceThatPanicsOrExitsEndsTheController with an error, and not the process.
func TestC5_ASourceThatPanicsOrExitsEndsTheController(t *testing.T) {
	for want, end := range map[string]func(){
		"panic: boom\n": func() { panic("boom") },
		"the source ended its goroutine, with runtime.Goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newController(noting(&calls{}), controller.Options{})
			c.Watch(wild{newSource("wild"), end})
			err := c.Run(t.Context())
			if want := `controller "test": Fake(wild): ` + want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Run returned %v, want %s", err, want)
			}
		})
	}
}

func TestWatchWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(noting(seen), controller.Options{})
		c.Watch(newSource("first", "a"))
		stop := start(t, c)
		time.Sleep(time.Second)
		late := newSource("late", "b")
		c.Watch(late)
		time.Sleep(time.Second)
		(<-late.queue).Queue.AddAll([]string{"c"}, workqueue.AddOptions{})
		time.Sleep(time.Second)
		ok(t, stop())
		testkit.SlicesEqual(t, seen.keys, []string{"a", "b", "c"}, "reconciled")
		c.Watch(newSource("too late", "d")) // has no effect
		synctest.Wait()
	})
}

func TestWatchWhileRunningWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(noting(&calls{}), controller.Options{})
		c.Watch(newSource("first", "a"))
		ctx, done := t.Context(), make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Second)
		late := newSource("late")
		late.wrong = errors.New("Fake(late): a predicate is nil")
		c.Watch(late)
		want := `controller "test": Fake(late): a predicate is nil`
		testkit.Equal(t, fmt.Sprint(<-done), want, "Run returned")
	})
}

func TestValidateNamesEverything(t *testing.T) {
	c := controller.NewWithQueue[string]("", nil, controller.Options{Workers: -1, Grace: -time.Second}, workqueue.Options[string]{
		Name: "keys", MinInterval: -1, MaxWait: -1,
	})
	wrong := newSource("keys")
	wrong.wrong = errors.Join(errors.New("Fake(keys): a predicate is nil"), errors.New("Fake(keys): the handler is nil"))
	c.Watch(nil)
	c.Watch(wrong)
	c.Reads(&reads{name: "Secrets"}, nil)
	want := strings.TrimSpace(`
controller "": workqueue "keys": MinInterval is -1ns, must not be negative
controller "": workqueue "keys": MaxWait is -1ns, must be zero or at least MinInterval (-1ns)
controller "": controller.Options.Workers: -1, must not be negative
controller "": controller.Options.Grace: -1s, must not be negative
controller "": the name is empty; give the controller a name
controller "": the reconciler is nil; pass a Reconciler to New
controller "": Watch: the source is nil; pass a source
controller "": Reads: an argument is nil; pass handles
controller "": Fake(keys): a predicate is nil
controller "": Fake(keys): the handler is nil`)
	testkit.Equal(t, fmt.Sprint(c.Validate()), want, "Validate says")
	testkit.Equal(t, fmt.Sprint(c.Run(t.Context())), want, "Run says")
	c.Queue().Add("a") // the queue exists even so

	c = controller.New("nil", controller.Func[string](nil), controller.Options{})
	c.Reads((*reads)(nil))
	want = "controller \"nil\": the reconciler is nil; pass a Reconciler to New\ncontroller \"nil\": Reads: an argument is nil; pass handles"
	testkit.Equal(t, fmt.Sprint(c.Validate()), want, "Validate says")
}

// nothing is a reconciler.
type nothing struct{}

func (*nothing) Reconcile(context.Context, string) (controller.Result, error) {
	return controller.Result{}, nil
}

// TestValidate_RefusesATypedNil, such as a pointer that was never set.
func TestValidate_RefusesATypedNil(t *testing.T) {
	c := controller.New("website", controller.Reconciler[string]((*nothing)(nil)), controller.Options{})
	testkit.Equal(t, fmt.Sprint(c.Validate()), `controller "website": the reconciler is nil; pass a Reconciler to New`, "Validate says")
}

func TestValidate_Names(t *testing.T) {
	for name, valid := range map[string]bool{
		"website": true, "a": true, "Web_site-2.x": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "two words": false, "-website": false, "website.": false, "*": false, "a/b": false, "a\nb": false, "größe": false,
	} {
		c := controller.New(name, &nothing{}, controller.Options{})
		if err := c.Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		} else if err != nil && name != "" && !strings.Contains(err.Error(), "the name is not valid; use at most 63 letters, digits") {
			t.Errorf("%q: the error does not state the rule: %v", name, err)
		}
	}
}

func TestNew(t *testing.T) {
	r := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	})
	c := controller.New("website", r, controller.Options{})
	ok(t, c.Validate())
	testkit.Equal(t, c.Name(), "website", "its name")
}
