// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

func TestFlags_BadInputIsNamed(t *testing.T) {
	for args, want := range map[string]string{
		"top -o yaml":                   `--output: "yaml" is unknown; use json`,
		"top --url localhost:6060":      `--url: "localhost:6060"; use a form such as http://localhost:6060`,
		"top --url http://":             `--url: "http://"; use`,
		"top --url http://x --lease y":  "exclude each other",
		"top --port 0":                  "--port: 0; use 1 to 65535",
		"top --timeout 0s":              "--timeout: 0s; use a positive duration",
		"why":                           "accepts between 1 and 2 arg(s)",
		"why website --url http://x":    `"website" names no object`,
		"why a/b c/d/e --url http://x":  `"a/b c/d/e" names no object`,
		"failing now":                   "unknown command",
		"nope":                          "unknown command",
		"top --kubeconfig /nonexistent": "the kubeconfig: ",
	} {
		plug(t, strings.Fields(args)...).check(t, 1, "", "error: ")
		if o := plug(t, strings.Fields(args)...); !strings.Contains(o.err, want) || o.out != "" {
			t.Errorf("%q prints %q and the error %q, want %q", args, o.out, o.err, want)
		}
	}
}

func TestHelp_HasTheExitCodes(t *testing.T) {
	o := plug(t, "--help")
	o.check(t, 0, "kubectl setpoint why website shop/web", "")
	o.check(t, 0, "  2  replicas answered, and something is wrong", "")
	testkit.NotContains(t, o.out, "--insecure-skip-tls-verify", "the help lists all flags of kubectl")
}

func failingPage(total int, keys ...failingKey) pages {
	return pages{"/debug/failing": failing{Keys: keys, Total: total}}
}

func TestFailing_ListsTheKeysOfAllReplicas(t *testing.T) {
	now := time.Now()
	leader := serve(t, failingPage(3,
		failingKey{Controller: "website", Key: "shop/web", Reason: why.Forbidden, Error: "configmaps is forbidden\nfor you", At: now.Add(-90 * time.Minute), Next: now.Add(5*time.Hour + time.Minute), Attempts: 4},
		failingKey{Controller: "website", Key: "shop/other", Reason: why.Terminal, Error: "no", At: now.Add(-90 * time.Minute), Terminal: true, Attempts: 1},
	))
	standby := serve(t, failingPage(0))
	o := plug(t, "failing", leader, standby)
	o.check(t, 2, "Forbidden   4          90m      in 5h", "2 of 3 failing keys are listed; see --limit\n")
	o.check(t, 2, "Terminal    1          90m      never   no\n", "2 of 3")
	o.check(t, 2, "configmaps is forbidden for you\n", "2 of 3")
	plug(t, "failing", standby).check(t, 0, "no key is failing (replicas asked: 1)\n", "")
	plug(t, "failing", "-o", "json", leader).check(t, 2, `"total": 3`, "2 of 3")
}

func TestFailing_PassesTheFiltersOn(t *testing.T) {
	asked := ""
	url := serve(t, pages{"/debug/failing": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		_ = json.NewEncoder(w).Encode(failing{})
	})})
	plug(t, "failing", url, "--limit=7", "--controller=web site", "--reason=Forbidden").check(t, 0, "no key is failing", "")
	testkit.Equal(t, asked, "controller=web+site&limit=7&reason=Forbidden", "asked for")
}

func TestJSON_HasAllReplicas(t *testing.T) {
	up, down := serve(t, because(forbidden())), "--url=http://127.0.0.1:1"
	o := plug(t, "why", "website", "shop/web", "-o=json", up, down)
	var got struct{ Replicas []answer }
	if err := json.Unmarshal([]byte(o.out), &got); err != nil || len(got.Replicas) != 2 {
		t.Fatalf("%v in %s", err, o.out)
	}
	if a, b := got.Replicas[0], got.Replicas[1]; a.Error != "" || b.Answer != nil || a.Replica != name(up) || !strings.Contains(b.Error, "refused") {
		t.Errorf("got %+v", got)
	}
	var answers why.Answers
	if err := json.Unmarshal(got.Replicas[0].Answer, &answers); err != nil || answers.Answers[0].Reason != why.Forbidden {
		t.Errorf("%v: %+v", err, answers)
	}
}

func TestAnswers_OfAnotherServer(t *testing.T) {
	html := pages{"/debug/informers/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })}
	plug(t, "informers", serve(t, html)).check(t, 1, "", "is not JSON; does another server listen there?")
	plug(t, "informers", serve(t, pages{"/debug/informers/": "text"})).check(t, 1, "", "has another form than expected")
}

func TestControllers_PassesTheNamesOn(t *testing.T) {
	url := serve(t, pages{"/debug/controllers/nope": refuse(404, `no controller is named "nope"; there are ["website"]`)})
	plug(t, "controllers", "nope", url).check(t, 1, "", `: no controller is named "nope"; there are ["website"]`)
}

// TestControllers_ShowsWhatItWaitsFor reads states as package debug writes them.
func TestControllers_ShowsWhatItWaitsFor(t *testing.T) {
	state := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	url := serve(t, pages{
		"/debug/controllers/":  []string{"a", "b", "c"},
		"/debug/controllers/a": state(`{"Name":"a","Workers":3,"Sources":[{"Source":"Kind(Pod.v1)","Phase":"failing","Err":"forbidden"},{"Source":"x","Phase":"synced"}],"Reads":[{"What":"Secret.v1","State":"syncing"}]}`),
		"/debug/controllers/b": state(`{"Name":"b","Leading":true,"Paused":true,"Slots":7,"TakingOver":"pods at 9","Sources":[{"Source":"y","Phase":"synced","Failure":"panic"}]}`),
		"/debug/controllers/c": state(`{"Name":"c","Leading":true,"Workers":1,"Queue":{"At":"2026-11-29T08:01:00Z","Len":{"Ready":2,"Waiting":5},"Keys":[
			{"State":"ready","Since":"2026-11-29T08:00:50Z"},{"State":"ready","Since":"2026-11-29T08:00:20Z"},{"State":"waiting","Since":"2026-11-29T07:00:00Z"}]}}`),
	})
	o := plug(t, "controllers", url)
	o.check(t, 0, "standby   3         -       0      0         1/3       Kind(Pod.v1): failing: forbidden\n", "")
	o.check(t, 0, "paused    0         7       0      0         1/1       taking over: waits for pods at 9\n", "")
	plug(t, "top", "c", url).check(t, 0, "0/1    2       5         0         40s            -\n", "")
}

func TestShards_ShowsMembersAndUnservedSlots(t *testing.T) {
	text := func(epoch int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `[{"Group":"operators/web","Standby":%t,"Member":"web-1","Epoch":%d,"Owned":"0-3,7","Trouble":"","Members":[{"Name":"web-%d","Identity":"pod_x","Weight":1,"Slots":5,"Leaving":true}],"Unserved":[{"Slots":"9","Since":"2020-01-01T00:00:00Z","Reason":"it has no owner yet"}]}]`, epoch == 3, epoch, epoch)
		}
	}
	o := plug(t, "shards", serve(t, pages{"/debug/shards/": text(4)}), serve(t, pages{"/debug/shards/": text(3)}))
	o.check(t, 0, "standby   3       0-3,7", "")
	o.check(t, 0, "web-4                     pod_x      1        5       leaving\n", "")
	testkit.Contains(t, o.out, ": slots 9, because it has no owner yet\n")
	testkit.NotContains(t, o.out, "web-3")
}

func TestShards_OfNoGroup(t *testing.T) {
	plug(t, "shards", serve(t, pages{"/debug/shards/": []group{}})).check(t, 0, "no replica is in a shard group (replicas asked: 1)\n", "")
}

func TestPodOf_KnowsTheIdentities(t *testing.T) {
	long := strings.Repeat("website-", 8)
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "website-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: long + "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Spec: corev1.PodSpec{Hostname: "host"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "on-node"}, Spec: corev1.PodSpec{HostNetwork: true, NodeName: "node-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two-a"}, Spec: corev1.PodSpec{HostNetwork: true, NodeName: "node-2"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two-b"}, Spec: corev1.PodSpec{HostNetwork: true, NodeName: "node-2"}},
	}
	for identity, want := range map[string]string{
		"website-1_5b1f": "website-1", "website-1": "website-1", long[:63] + "_5b1f": "none",
		strings.TrimRight(long[:63], "-") + "_5b1f": long + "1", "host_5b1f": "named", "node-1_5b1f": "on-node",
		"node-2_5b1f": "none", "_5b1f": "none", "website_5b1f": "none",
	} {
		got := "none"
		if pod := podOf(identity, pods); pod != nil {
			got = pod.Name
		}
		testkit.Equal(t, got, want, fmt.Sprintf("%s belongs to", identity))
	}
}

func TestPodOf_NeedsAHostName(t *testing.T) {
	if pod := podOf("_5b1f", []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "website-1"}}}); pod != nil {
		t.Errorf("it belongs to %s", pod.Name)
	}
}

func FuzzClean_LeavesOneVisibleLine(f *testing.F) {
	f.Add("a\x1b[2J\nb")
	f.Fuzz(func(t *testing.T, text string) {
		got := clean(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0", 512: "512", 11 << 10: "11Ki", 212<<20 + 5: "212Mi"} {
		testkit.Equal(t, size(bytes), want, bytes)
	}
}
