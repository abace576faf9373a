// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// testActions: the annotations reach the object, in the name of the user.
func (s *site) testActions(t *testing.T) {
	annotations := func() map[string]string {
		m, err := s.client.CoreV1().ConfigMaps("shop").Get(t.Context(), "next", metav1.GetOptions{})
		succeed(t, err)
		if f := m.ManagedFields; len(f) > 1 || len(f) == 1 && f[0].Manager != "kubectl-setpoint" {
			t.Errorf("the field managers are %+v", f)
		}
		return m.Annotations
	}
	s.plug(t, "requeue", "cm", "shop/next").check(t, 0, "cm shop/next has the annotation setpoint.dev/requeue; its operator reconciles it now\n", "")
	first := annotations()["setpoint.dev/requeue"]
	s.plug(t, "requeue", "cm/next", "-n=shop").check(t, 0, "cm shop/next has the annotation setpoint.dev/requeue; ", "")
	testkit.NotEqual(t, first, "")
	testkit.NotEqual(t, annotations()["setpoint.dev/requeue"], first)
	s.plug(t, "pause", "configmaps", "shop/next").check(t, 0, "configmaps shop/next has the annotation setpoint.dev/paused; its operator reconciles it no more, until kubectl setpoint resume\n", "")
	testkit.NotEqual(t, annotations()["setpoint.dev/paused"], "", "the object is not paused")
	eventually(t, "the pause is noticed", func() bool {
		return strings.Contains(s.plug(t, "why", "cm", "shop/next", "--lease=website-operator").out, "the key is paused by annotation setpoint.dev/paused of shop/next")
	})
	s.plug(t, "requeue", "cm", "shop/next").check(t, 0, "; it is paused, and its operator reconciles it after kubectl setpoint resume\n", "")
	s.plug(t, "resume", "cm", "shop/next", "-o=json").check(t, 0, `"annotation": "setpoint.dev/paused"`, "")
	value, ok := annotations()["setpoint.dev/paused"]
	testkit.Equal(t, ok, false, "the object is still paused", value)
	s.plug(t, "resume", "cm", "shop/next").check(t, 0, "cm shop/next has no annotation setpoint.dev/paused; its operator reconciles it again\n", "")
	for args, want := range map[string]string{
		"requeue websitee shop/next":    `error: the cluster has no kind "websitee"; use a kind or resource such as website or Website.example.com` + "\n",
		"pause cm shop/nope":            `error: there is no configmaps "nope" in the namespace shop; check the name, and the namespace with -n` + "\n",
		"resume cm /next":               "error: configmaps are namespaced; use a form such as cm shop/next\n",
		"requeue cm shop/next --as=bob": `error: you may not patch configmaps "next" in the namespace shop; grant the verb patch on configmaps there` + "\n",
	} {
		o := s.plug(t, strings.Fields(args)...)
		if o.code != 1 || o.err != want || o.out != "" {
			t.Errorf("%s: %+v, want the error %s", args, o, want)
		}
	}
}

// TestActions_OfAKey: all replicas are asked, and one acts.
func TestActions_OfAKey(t *testing.T) {
	asked := ""
	leader := serve(t, pages{"/debug/pause": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.Header.Get("Content-Type") + " " + string(body)
		_, _ = w.Write([]byte(`{"result": "nightly is paused"}`))
	})})
	standby := serve(t, pages{"/debug/pause": refuse(http.StatusConflict, `controller "website": this replica does not lead`)})
	off := serve(t, pages{"/debug/pause": refuse(http.StatusForbidden, "actions are off; set debug.Options.Actions")})
	o := plug(t, "pause", "--controller=website", "--key=nightly", leader, standby)
	o.check(t, 0, name(leader)+": nightly is paused\n", name(standby)+`: controller "website": this replica does not lead`+"\n")
	testkit.Equal(t, asked, `POST application/json {"controller":"website","key":"nightly"}`)
	plug(t, "pause", "--controller=website", "--key=nightly", off).check(t, 1, "", "it refuses to answer (403 Forbidden): actions are off; set debug.Options.Actions\n")
	for _, args := range []string{"pause", "pause --key=x", "pause --controller=x", "pause website shop/web --key=x --controller=y"} {
		plug(t, strings.Fields(args)...).check(t, 1, "", "error: name an object, such as website shop/web, or a key with --controller and --key\n")
	}
}
