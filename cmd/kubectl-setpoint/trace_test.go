// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// reconcile is a line of a trace, of an object at a version.
func reconcile(version int, replicas string) string {
	object := fmt.Sprintf(`{"metadata":{"uid":"1","resourceVersion":"%d","managedFields":[{"time":"%d"}]},"spec":{"replicas":%s}}`, version, version, replicas)
	return fmt.Sprintf(`{"controller":"website","key":"shop/web","reconcileID":"a-%d","began":"2026-11-29T09:00:00Z","took":3000000,"outcome":"success",`+
		`"because":["added by x\u001b[31m"],"reads":[{"kind":"Website","object":"shop/web","value":{"json":%s}},{"kind":"Secret","object":"shop/key","value":{"hidden":"never shown"}},`+
		`{"kind":"ConfigMap","object":"shop/x","missing":true,"value":{}}],"requests":[{"request":"patch websites shop/web","status":200,"took":1000000,"effect":"stored","version":"%d","value":{}}]}`,
		version, object, version)
}

func lines(all ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(all, "\n")+"\n") }
}

func TestTrace_ShowsWhatHasChanged(t *testing.T) {
	asked := ""
	leads := serve(t, pages{"/debug/trace": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		lines("", reconcile(1, "2"), "", reconcile(2, "3"))(w, r)
	})})
	standsBy := serve(t, pages{"/debug/trace": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `controller "website": this replica does not lead`, http.StatusConflict)
	})})
	o := plug(t, "trace", "website", "shop/web", leads, standsBy, "--for=1m")
	o.check(t, 0, "website shop/web: success after 3ms (a-1)\n  added by x[31m\n  read Website shop/web at version 1\n  read Secret shop/key (never shown)\n"+
		"  read ConfigMap shop/x: the cache does not have it\n  patch websites shop/web: 200 after 1ms, stored at version 1\n", "")
	o.check(t, 0, "  read Website shop/web at version 2\n    .spec.replicas: 2 → 3\n  read Secret", "")
	testkit.Equal(t, asked, "kind=website&name=web&namespace=shop&seconds=60", "asked for")
	plug(t, "trace", "website", "shop/web", standsBy).check(t, 1, "", `error: no replica traces the object: `)
	plug(t, "trace", "website", "shop/web", leads, "-o", "json").check(t, 0, `"reconcileID": "a-2"`, "")
}

func TestTrace_BadInput(t *testing.T) {
	ends := serve(t, pages{"/debug/trace": lines(reconcile(1, "2"), `{"error":"the end"}`, "<html>")})
	o := plug(t, "trace", "website", "shop/web", ends)
	o.check(t, 0, "read Website", ": the end\n")
	o.check(t, 0, "read Website", ": a line is not JSON; does another server listen there?\n")
	plug(t, "trace", "website", "shop/web", ends, "--for=11m").check(t, 1, "", "--for: 11m0s; use 1s to 10m0s")
	off := serve(t, pages{"/debug/trace": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "a trace has values of objects, which are off; set debug.Options.Values", http.StatusForbidden)
	})})
	plug(t, "trace", "website", "shop/web", off).check(t, 1, "", "a trace has values of objects, which are off; set debug.Options.Values")
}
