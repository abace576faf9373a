// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

func TestMain(m *testing.M) {
	// When both sides close a connection, spdystream offers the second error to a reader for 1 s.
	closing := goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown")
	goleak.VerifyTestMain(m, closing)
}

// output is what a run of the plugin printed.
type output struct {
	code     int
	out, err string
}

// plug runs the plugin.
func plug(t *testing.T, args ...string) output {
	t.Helper()
	var out, diag bytes.Buffer
	code := run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &diag})
	return output{code, out.String(), diag.String()}
}

// check compares the exit code, and requires text on standard output and on standard error.
func (o output) check(t *testing.T, code int, out, diag string) {
	t.Helper()
	testkit.Equal(t, o.code, code, "exit code")
	testkit.Contains(t, o.out, out, fmt.Sprintf("standard output lacks %s", out))
	if !strings.Contains(o.err, diag) || diag == "" && o.err != "" {
		t.Errorf("standard error lacks\n%s", diag)
	}
	if t.Failed() {
		t.Logf("standard output:\n%s\nstandard error:\n%s", o.out, o.err)
	}
}

// pages is the debug server of a replica: by path, a value that is encoded, or a handler.
type pages map[string]any

// ServeHTTP implements http.Handler.
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch page := p[r.URL.Path].(type) {
	case nil:
		http.NotFound(w, r)
	case http.HandlerFunc:
		page(w, r)
	default:
		_ = json.NewEncoder(w).Encode(page)
	}
}

// serve returns the flag --url for a replica with these pages.
func serve(t *testing.T, p http.Handler) string {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return "--url=" + server.URL
}

// name returns the name by which the plugin calls the replica of --url.
func name(url string) string { return strings.TrimPrefix(url, "--url=http://") }

// because is the page /debug/why with these answers.
func because(answers ...why.Answer) pages {
	return pages{"/debug/why": why.Answers{Object: why.Object{Kind: "website", Namespace: "shop", Name: "web"}, Answers: answers}}
}

func refuse(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
}
