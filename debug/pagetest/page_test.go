// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package pagetest_test

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

//go:embed testdata/contrast.js
var contrast string

const (
	wide   = 1400
	narrow = 390
)

// views are the page's views, each with the text that it waits for.
func views(keys int) map[string]string {
	v := map[string]string{
		"": "all 2 controllers", "keys": map[int]string{0: "No keys", 3: "3 keys", 10_000: "The first 1,000"}[keys], "why": "Enter the kind", "informers": "ConfigMap.v1",
		"why?kind=ConfigMap&namespace=team-a&name=shop-00000": "Asked at", "keys?sort=duration": map[int]string{0: "No keys", 3: "3 keys", 10_000: "The first 1,000"}[keys],
	}
	if keys == 0 {
		v["keys?q=zzz"] = "No keys"
	} else {
		v["keys?q=zzz"] = "No key matches"
		v["why?kind=Website&name=%3Cb%3Ehtml"] = "no controller of this process watches"
	}
	return v
}

// TestPage_InAllForms: each view works with few and many keys, in wide and narrow windows, dark and
// light, without an error, a request elsewhere, a horizontal scroll bar or faint text.
func TestPage_InAllForms(t *testing.T) {
	browser := newBrowser(t)
	for _, keys := range []int{0, 3, 10_000} {
		s := newSite(t, keys, debug.Options{})
		for _, width := range []int64{wide, narrow} {
			for _, scheme := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%d keys, %d px, %s", keys, width, scheme), func(t *testing.T) {
					p := browser.open(t, s.URL+"/debug/", width, scheme)
					for view, text := range views(keys) {
						p.visit(view, text)
						p.check(view)
					}
					p.clean(s.URL)
				})
			}
		}
	}
}

func (p *tab) check(view string) {
	p.t.Helper()
	if over := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		p.t.Errorf("%q is %d px too wide", view, over)
	}
	faint := eval[[]string](p, contrast)
	testkit.Len(p.t, faint, 0, fmt.Sprintf("%q has text with a contrast below 4.5", view))
}

// TestPage_ShowsAShardGroup: members, silent ones too, and unserved slots.
func TestPage_ShowsAShardGroup(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{})
	s.group.Store(new(`[{"Group": "default/web", "Member": "web-1@7", "Moving": 2, "Members": [
		{"Name": "web-1", "Identity": "pod-a_<b>1</b>", "Slots": 128}, {"Name": "web-2", "Identity": "pod-b_2", "Slots": 128, "Silent": "2026-11-29T08:00:00Z"}],
		"Unserved": [{"Slots": "128-255", "Since": "2026-11-29T08:00:10Z", "Reason": "its owner web-2@9 does not renew its Lease"}]}]`))
	for _, width := range []int64{wide, narrow} {
		p := browser.open(t, s.URL+"/debug/", width, "dark")
		for _, text := range []string{"default/web", "web-1 (this process)", "pod-a_<b>1</b>", "silent for", "2 slots about to move", "slots 128-255 are unserved: its owner web-2@9"} {
			p.visit("", text)
		}
		p.check("")
		p.clean(s.URL)
	}
}

// TestPage_ShowsLeases: who leads, as text.
func TestPage_ShowsLeases(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{})
	p := browser.open(t, s.URL+"/debug/", narrow, "light")
	p.visit("", "all 2 controllers")
	text := eval[string](p, `seen.summary.leases = [{ name: "ops/web", leader: "pod-a", mine: true }, { name: "ops/db", leader: "pod-<b>b</b>" }, { name: "ops/x", trouble: "forbidden" }];
		drawOverview();
		document.getElementById("leases").innerText`)
	for _, want := range []string{"Lease ops/web: this process leads", "Lease ops/db: pod-<b>b</b> leads", "Lease ops/x: no leader is known; forbidden"} {
		testkit.Contains(t, text, want)
	}
	p.check("")
	p.clean(s.URL)
}

// TestPage_HTMLIsInert: a key and an error that are HTML are shown as text.
func TestPage_HTMLIsInert(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{})
	p := browser.open(t, s.URL+"/debug/", wide, "light")
	p.visit("keys", hostile)
	p.visit("keys", "cannot write <b>backup</b>")
	p.visit("why?kind=ConfigMap&namespace=team-b&name=shop-00001", hostile)
	p.visit("why?"+"kind=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E&name=%3Cscript%3E", "<img src=x onerror=alert(1)>")
	if n := eval[int](p, `document.querySelectorAll("main img, main script, main b:not(.remedy b)").length`); n > 0 {
		t.Errorf("the page has %d elements from names", n)
	}
	testkit.NotEqual(t, eval[string](p, `document.title`), "owned", "a name ran as a script")
	p.clean(s.URL)
}

// TestPage_Acts: the buttons of a key work with the keyboard, and the result is read out. A key
// that names no object has them, too.
func TestPage_Acts(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{Actions: true})
	for _, width := range []int64{wide, narrow} {
		p := browser.open(t, s.URL+"/debug/", width, "dark")
		p.visit("why?kind=ConfigMap&namespace=team-a&name=shop-00000", "Asked at")
		p.until(`document.querySelector("#answers button")?.textContent ?? ""`, "Requeue")
		focused := `document.activeElement.getAttribute("aria-label") ?? ""`
		p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector("#answers button").focus()`), chromedp.KeyEvent(kb.Enter))
		p.wait("team-a/shop-00000 is due now")
		p.until(focused, "requeue team-a/shop-00000")
		p.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
		p.wait("team-a/shop-00000 is paused until it is resumed here")
		p.wait("paused by debug page (over HTTP since ")
		p.until(focused, "resume team-a/shop-00000")
		p.check("a paused key")
		p.run(chromedp.KeyEvent(" "))
		p.wait("team-a/shop-00000 is resumed")
		p.until(focused, "pause team-a/shop-00000")
		testkit.Equal(t, eval[string](p, `document.getElementById("acted").getAttribute("role")`), "status", "the result is in a region with the role")
		p.visit("", "Requeue, pause and resume are on.")
		p.visit("keys?controller=backup&q=img", hostile)
		p.run(chromedp.Focus("#rows"), chromedp.KeyEvent(kb.Enter))
		p.wait(": cannot write <b>backup</b>")
		p.wait("wrote nothing")
		p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector("#answers button").click()`))
		p.wait(hostile + " is due now")
		p.check("a key without an object")
		p.clean(s.URL)
		p.close()
	}
	off := newSite(t, 3, debug.Options{})
	p := browser.open(t, off.URL+"/debug/", wide, "light")
	p.visit("why?kind=ConfigMap&namespace=team-a&name=shop-00000", "Asked at")
	testkit.Equal(t, eval[int](p, `document.querySelectorAll("#answers button").length`), 0, "a page that only reads has buttons")
}

// TestPage_Measures: after some Reconciles, the overview has rates and durations with a line each.
func TestPage_Measures(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 10_000, debug.Options{})
	p := browser.open(t, s.URL+"/debug/", narrow, "dark")
	p.visit("", "all 2 controllers")
	const website = `document.querySelector('[aria-label="Controller website"]')`
	p.until(`[...`+website+`.querySelectorAll(".spark path")].filter((l) => /^M.*L/.test(l.getAttribute("d"))).length > 3 ? "lines" : ""`, "lines")
	if text := eval[string](p, website+`.innerText`); !regexp.MustCompile(`Took: p50, p99\s+[\d.]+ (µs|ms), [\d.]+ (µs|ms|s)\s+API requests per second\s+[\d.]+`).MatchString(text) {
		t.Errorf("the controller has\n%s", text)
	}
	s.first.(interface{ Pause() }).Pause() //nolint:forcetypeassert // a *controller.Controller
	p.wait("ready by class: ")
	p.check("")
	p.clean(s.URL)
}

// TestPage_TabOrder: all controls are reached in the order in which they are read.
func TestPage_TabOrder(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{Actions: true})
	p := browser.open(t, s.URL+"/debug/", wide, "light")
	const top = "Skip to the content, Overview, Keys, Why, Informers, "
	for _, c := range []struct{ view, text, want string }{
		{"", "all 2 controllers", top + "backup, 0 ready, 0 in progress, 1 waiting, 0 parked, 1 paused, 1 Error, website, 0 ready, "},
		{"keys", "3 keys", top + "q, controller, state, reason, sort, rows, Profiles"},
		{"why", "Enter the kind", top + "kind, namespace, object, Ask why, Profiles"},
		{"why?kind=ConfigMap&namespace=team-a&name=shop-00000", "Asked at", top + "kind, namespace, object, Ask why, Requeue, Pause, Profiles"},
		{"informers", "ConfigMap.v1", top + "reload, Profiles"},
	} {
		p.visit(c.view, c.text)
		p.run(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur(); getSelection().removeAllRanges(); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute("tabindex")`))
		var order []string
		for range 30 {
			p.run(chromedp.KeyEvent(kb.Tab))
			at := eval[string](p, `(a => a === document.body ? "" : a.id || a.textContent.trim())(document.activeElement)`)
			if at == "" || at == "Skip to the content" && len(order) > 0 {
				break
			}
			order = append(order, at)
			testkit.Equal(t, eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`), "solid", c.view, fmt.Sprintf("the focus of %s is invisible", at))
		}
		if got := strings.Join(order, ", ") + ", "; !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: the tab order is %s\nwant %s", c.view, got, c.want)
		}
	}
	p.visit("", "all 2 controllers")
	p.run(chromedp.KeyEvent("/"), chromedp.Sleep(100*time.Millisecond), chromedp.KeyEvent("nightly"))
	p.wait(`1 key of`)
	testkit.Equal(t, eval[string](p, `document.activeElement.id + " " + location.hash`), "q #/keys?q=nightly", "after / and a text, the focus and the address")
	p.clean(s.URL)
}

// TestPage_ManyKeys: of 10,000 keys the list has the first 1,000, and few of them are in the page.
func TestPage_ManyKeys(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 10_000, debug.Options{})
	p := browser.open(t, s.URL+"/debug/", wide, "light")
	p.visit("keys", "The first 1,000 of")
	p.run(chromedp.Focus("#rows"))
	frames := eval[[]float64](p, `new Promise((done) => {
		const box = document.getElementById("rows"), frames = [];
		let last = performance.now();
		const step = (at) => {
			frames.push(at - last);
			last = at;
			box.scrollTop += 400;
			frames.length < 80 ? requestAnimationFrame(step) : done(frames);
		};
		requestAnimationFrame(step);
	})`)
	slices.Sort(frames)
	t.Logf("frames of a scroll: median %.1f ms, p95 %.1f ms, longest %.1f ms", frames[40], frames[76], frames[79])
	p.run(chromedp.KeyEvent(kb.End), chromedp.Sleep(300*time.Millisecond))
	testkit.Equal(t, eval[string](p, `document.querySelector("[aria-selected=true]").id`), "row-999", "End selects")
	if n := eval[int](p, `document.querySelectorAll("*").length`); n > 1000 {
		t.Errorf("the page has %d elements", n)
	}
	took := eval[float64](p, `(async () => { const at = performance.now(); await (await fetch("keys?sort=reason")).json(); return performance.now() - at })()`)
	t.Logf("the list takes %.0f ms", took)
	p.run(chromedp.KeyEvent(kb.Enter))
	p.wait("Asked at")
	p.clean(s.URL)
}

// TestPage_ShowsALostConnection: a banner has the time, and goes when the server is back.
func TestPage_ShowsALostConnection(t *testing.T) {
	browser, s := newBrowser(t), newSite(t, 3, debug.Options{})
	p := browser.open(t, s.URL+"/debug/", narrow, "dark")
	p.visit("", "all 2 controllers")
	s.down.Store(true)
	s.CloseClientConnections()
	p.wait("Connection lost since ")
	p.check("the banner")
	s.down.Store(false)
	for begin := time.Now(); !eval[bool](p, `document.getElementById("lost").hidden`); pause(t) {
		if time.Since(begin) > 40*time.Second {
			t.Fatal("the banner stays")
		}
	}
}

// TestPage_Screenshots writes the pictures of the guide with SETPOINT_UPDATE=1. With
// SETPOINT_SHOTS, it writes all views to that folder.
func TestPage_Screenshots(t *testing.T) {
	all := os.Getenv("SETPOINT_SHOTS")
	if os.Getenv("SETPOINT_UPDATE") != "1" && all == "" {
		t.Skip("set SETPOINT_UPDATE=1 to write the screenshots of docs/operations.md")
	}
	browser, s := newBrowser(t), newSite(t, 10_000, debug.Options{Actions: true})
	shot := func(file, view, text string, width int64, scheme string) {
		p := browser.open(t, s.URL+"/debug/", width, scheme)
		p.visit(view, text)
		if width == wide && (view == "" || all == "") {
			command(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 620, DeviceScaleFactor: 1})
		}
		if view == "" {
			p.run(chromedp.Sleep(40 * time.Second)) // for a rate, and some of its past
		}
		png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		testkit.NoError(t, err)
		if len(png) > 180_000 {
			t.Errorf("%s has %d bytes", file, len(png))
		}
		p.close()
		testkit.Equal(t, os.WriteFile(file, png, 0o600), nil)
	}
	if all == "" {
		shot("../../docs/debug-page.png", "", "all 2 controllers", wide, "light")
		shot("../../docs/debug-page-narrow.png", "keys?reason=any", "The first 1,000", narrow, "dark")
		key := types.NamespacedName{Namespace: "team-a", Name: "shop-06188"}
		testkit.NoError(t, testkit.Err(s.first.(*controller.Controller[types.NamespacedName]).Act(t.Context(), "pause", key.String(), "alice")))
		shot("../../docs/debug-page-key.png", "why?kind=ConfigMap&namespace=team-a&name=shop-06188", "is paused by alice", wide, "light")
		return
	}
	for i, view := range []string{"", "keys?reason=any", "why?kind=ConfigMap&namespace=team-a&name=shop-06188", "informers"} {
		for _, width := range []int64{wide, narrow} {
			text := []string{"all 2 controllers", "The first 1,000", "Asked at", "ConfigMap.v1"}[i]
			shot(filepath.Join(all, fmt.Sprintf("%d-%d.png", i, width)), view, text, width, []string{"light", "dark"}[(i+int(width/1000))%2])
		}
	}
}
