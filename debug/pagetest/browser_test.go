// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package pagetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// browser is a Chromium that ends with its test.
type browser struct{ context.Context }

func newBrowser(t *testing.T) browser {
	t.Helper()
	if os.Getenv("SETPOINT_FULL") == "" && os.Getenv("SETPOINT_UPDATE") == "" {
		t.Skip("set SETPOINT_FULL=1 to test the page in Chromium, as make test-full does")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox)
		ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
		t.Cleanup(stop)
		ctx, end := chromedp.NewContext(ctx)
		t.Cleanup(end)
		testkit.NoError(t, chromedp.Do(ctx), fmt.Sprintf("%s does not start", program))
		return browser{ctx}
	}
	t.Skip("no Chromium is found, so the page is not tested; install it, for example with apt-get install chromium")
	return browser{}
}

// tab is one page.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps a tab in its context
	// close closes the tab. An open one keeps its stream: a browser has six connections to a host.
	close func()

	mu       sync.Mutex // guards what follows
	requests []string
	errors   []string
}

func (b browser) open(t *testing.T, url string, width int64, scheme string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(b.Context)
	t.Cleanup(end)
	p := &tab{t: t, ctx: ctx, close: end}
	testkit.NoError(t, chromedp.Listen(ctx, p.listen))
	height := int64(900)
	if width < 500 {
		height = 844
	}
	command(p, network.Enable, network.EnableParams{})
	command(p, log.Enable, cdp.Empty{})
	command(p, runtime.Enable, cdp.Empty{})
	command(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	p.run(chromedp.Navigate(url))
	return p
}

func command[P, R any](p *tab, c cdp.Command[P, R], params P) {
	p.t.Helper()
	testkit.NoError(p.t, testkit.Err(chromedp.Call(p.ctx, c, params)))
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		p.errors = append(p.errors, e.Entry.Text)
	case *runtime.EventConsoleAPICalled:
		p.errors = append(p.errors, "console."+string(e.Type))
	}
}

func (p *tab) run(all ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	testkit.NoError(p.t, chromedp.Do(ctx, all...))
}

// visit goes to a view, and waits for a text.
func (p *tab) visit(view, text string) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void]("location.hash = '#/" + view + "'"))
	p.wait(text)
}

func (p *tab) wait(text string) {
	p.t.Helper()
	shown := ""
	for begin := time.Now(); time.Since(begin) < 30*time.Second; pause(p.t) {
		if shown = eval[string](p, `document.body.innerText`); strings.Contains(shown, text) {
			return
		}
	}
	p.t.Fatalf("the page does not show %q, but:\n%s", text, shown)
}

// until waits until a script returns a text.
func (p *tab) until(script, want string) {
	p.t.Helper()
	for begin := time.Now(); ; pause(p.t) {
		got := eval[string](p, script)
		if got == want {
			return
		}
		if time.Since(begin) > 30*time.Second {
			p.t.Fatalf("%s is %q, want %q", script, got, want)
		}
	}
}

// clean fails for errors in the console and requests to other servers.
func (p *tab) clean(server string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, err := range p.errors {
		p.t.Errorf("the console has %s", err)
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, server+"/debug/") && !strings.HasPrefix(url, "data:") {
			p.t.Errorf("the page requests %s", url)
		}
	}
}

// pause waits before the next look at something without a signal.
func pause(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// eval evaluates a script, which may return a promise.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	testkit.NoError(p.t, err)
	return v
}
