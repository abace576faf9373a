// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

func forbidden() why.Answer {
	return why.Answer{
		Reason: why.Forbidden, Controller: "website", Key: "shop/web", Cause: "it failed 4 times in a row",
		Remedy: "give the ServiceAccount the right that the error names", Evidence: []string{"added by Kind(*v1alpha1.Website): Update of shop/web at 812"},
	}
}

func notLeading() why.Answer {
	return why.Answer{Reason: why.NotLeading, Controller: "website", Key: "shop/web", Cause: "website-1 leads"}
}

func TestWhy_ShowsTheLeaderFirstAndStandbysInALine(t *testing.T) {
	standby, leader := serve(t, because(notLeading())), serve(t, because(forbidden()))
	plug(t, "why", "website", "shop/web", standby, leader).check(t, 2, name(leader)+`:
website shop/web: it failed 4 times in a row
  remedy: give the ServiceAccount the right that the error names
  reason: Forbidden
  added by Kind(*v1alpha1.Website): Update of shop/web at 812
`+name(standby)+": website: website-1 leads (NotLeading)\n", "")
}

func TestWhy_SucceedsIfTheFirstAnswerIsNoTrouble(t *testing.T) {
	done := why.Answer{Reason: why.Done, Controller: "website", Key: "shop/web", Cause: "it succeeded 5 s ago"}
	other := why.Answer{Reason: why.OtherMember, Controller: "website", Key: "shop/web", Cause: "website-1 owns slot 7"}
	late := why.Answer{Reason: why.Late, Cause: "the cache does not show it yet"}
	member, owner, behind := serve(t, because(other)), serve(t, because(done)), serve(t, because(late))
	o := plug(t, "why", "website", "shop/web", member, behind, owner)
	o.check(t, 0, "it succeeded 5 s ago", "")
	if !strings.HasPrefix(o.out, name(owner)+":\n") {
		t.Errorf("the replica that has the key is not first:\n%s", o.out)
	}
}

func TestWhy_CountsStandbysIfNoReplicaLeads(t *testing.T) {
	plug(t, "why", "website", "shop/web", serve(t, because(notLeading()))).check(t, 2, "  reason: NotLeading\n", "")
}

func TestWhy_ShowsEqualAnswersOnce(t *testing.T) {
	unknown := why.For(t.Context(), why.Object{Kind: "Websit"}, watches{})
	page := pages{"/debug/why": unknown}
	a, b := serve(t, page), serve(t, page)
	o := plug(t, "why", "Websit", "shop/web", a, b)
	o.check(t, 2, name(a)+", "+name(b)+":\n", "")
	o.check(t, 2, "watched kinds: Website.v1.example.com\n", "")
	if n := strings.Count(o.out, "NotWatched"); n != 1 {
		t.Errorf("NotWatched is shown %d times:\n%s", n, o.out)
	}
}

// watches is an explainer without answers.
type watches struct{}

func (watches) Explain(context.Context, why.Object) []why.Answer { return nil }

func (watches) Watches() []string { return []string{"Website.v1.example.com"} }

func TestWhy_TellsOfAnObjectThatNeverExisted(t *testing.T) {
	missing := why.Answer{Reason: why.NotFound, Controller: "website", Cause: "the API server has no such object"}
	plug(t, "why", "website", "shop/nope", serve(t, because(missing))).check(t, 2, "  reason: NotFound\n", "")
}

func TestWhy_ASilentReplicaHidesNoAnswer(t *testing.T) {
	hang := pages{"/debug/why": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
	silent, refusing, old, leader := serve(t, hang), serve(t, pages{"/debug/why": refuse(403, "no\x1b[31m")}), serve(t, pages{}), serve(t, because(forbidden()))
	o := plug(t, "why", "website", "shop/web", "--timeout=5s", silent, refusing, old, leader)
	o.check(t, 2, "it failed 4 times in a row", name(silent)+": no answer within 5s; see --timeout\n")
	o.check(t, 2, "", name(refusing)+": it refuses to answer (403 Forbidden): no[31m\n")
	o.check(t, 2, "", name(old)+": it does not serve /debug/why; ")
	if n := strings.Count(o.err, "\n"); n != 3 {
		t.Errorf("%d lines on standard error, want 3:\n%s", n, o.err)
	}
}

func TestWhy_PassesTheServersSentenceOn(t *testing.T) {
	bad := pages{"/debug/why": refuse(400, `kind "": name a kind`)}
	a, b := serve(t, bad), serve(t, bad)
	plug(t, "why", "x", "y/z", a, b).check(t, 1, "", "error: no replica answered: "+name(a)+", "+name(b)+`: kind "": name a kind`+"\n")
}

func TestWhy_AsksForTheNamedObject(t *testing.T) {
	empty := "--kubeconfig=/dev/null"
	for args, want := range map[string]string{
		"website shop/web":       "website shop web",
		"website/web -n shop":    "website shop web",
		"website web -n shop":    "website shop web",
		"website web":            "website default web",
		"Website.example.com /w": "Website.example.com  w",
	} {
		asked := ""
		url := serve(t, pages{"/debug/why": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.FormValue("kind") + " " + r.FormValue("namespace") + " " + r.FormValue("name")
			_ = json.NewEncoder(w).Encode(why.Answers{Answers: []why.Answer{forbidden()}})
		})})
		plug(t, append([]string{"why", url, empty}, strings.Fields(args)...)...).check(t, 2, "", "")
		testkit.Equal(t, asked, want, fmt.Sprintf("%q asks for", args))
	}
}

// TestWhy_PrintsNoControlCharacters: a name from a cluster may have been chosen to deceive.
func TestWhy_PrintsNoControlCharacters(t *testing.T) {
	const evil = "a\x1b[2J\x07\u009b1m\u202eb\nreason: Done\r\xff\t\U000e0041"
	a := forbidden()
	a.Reason, a.Key, a.Controller, a.Cause, a.Evidence = evil, evil, evil, evil, []string{evil}
	b := notLeading()
	b.Controller, b.Cause = evil, evil
	// The JSON of other encoders may have the bytes themselves.
	text, _ := json.Marshal(why.Answers{Answers: []why.Answer{a}})
	raw := strings.ReplaceAll(string(text), "reason: ", "reason: \u009b\u202e\u007f")
	first := serve(t, pages{"/debug/why": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(raw)) })})
	second, third := serve(t, because(b)), serve(t, pages{"/debug/why": refuse(500, evil)})
	for _, format := range []string{"", "json"} {
		o := plug(t, "why", "website", "shop/web", "-o", format, first, second, third)
		for _, text := range []string{o.out, o.err} {
			if i := strings.IndexAny(text, "\x1b\x07\u009b\u202e\r\t\x7f\U000e0041"); i >= 0 {
				t.Errorf("-o %q prints %q", format, text[i:])
			}
		}
		testkit.NotContains(t, o.out, "\nreason: Done", fmt.Sprintf("-o %q prints a forged line", format))
		if format == "" {
			continue
		}
		var got struct {
			Replicas []struct{ Answer why.Answers }
		}
		want := strings.ToValidUTF8(strings.ReplaceAll(evil, "reason: ", "reason: \u009b\u202e\u007f"), "\uFFFD")
		if err := json.Unmarshal([]byte(o.out), &got); err != nil || got.Replicas[0].Answer.Answers[0].Key != want {
			t.Errorf("%v: -o json changes the key to %q, want %q", err, got.Replicas[0].Answer.Answers[0].Key, want)
		}
	}
}

func TestWhy_FollowsNoRedirect(t *testing.T) {
	other := serve(t, because(forbidden()))
	url := serve(t, pages{"/debug/why": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.TrimPrefix(other, "--url=")+"/debug/why", http.StatusFound)
	})})
	plug(t, "why", "website", "shop/web", url).check(t, 1, "", "it answered 302 Found")
}
