// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// redirector is an API server over TLS that redirects some requests for Secrets, and another server
// next to it.
type redirector struct {
	api, other *httptest.Server
	cfg        *rest.Config

	mu     sync.Mutex // guards what follows
	code   int        // 0: no redirect
	to     string
	caught []string // requests that have come to the other server
}

func newRedirector(t *testing.T) *redirector {
	r := &redirector{}
	fake := sim.NewServer(sim.Secrets)
	fake.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	r.other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.caught = append(r.caught, fmt.Sprintf("%s %s %q %q", req.Method, req.URL, req.Header.Get("Authorization"), body))
	}))
	t.Cleanup(r.other.Close)
	r.api = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if code, to := r.redirects(req); code != 0 {
			http.Redirect(w, req, to, code)
			return
		}
		req.RequestURI, req.URL.Scheme, req.URL.Host = "", "http", req.Host
		resp, err := fake.RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		w.(http.Flusher).Flush()
		io.Copy(w, resp.Body)
	}))
	r.api.EnableHTTP2 = true
	r.api.StartTLS()
	t.Cleanup(r.api.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.api.Certificate().Raw})
	r.cfg = &rest.Config{Host: r.api.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return r
}

func (r *redirector) redirects(req *http.Request) (int, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.Contains(req.URL.Path, "/secrets") {
		return 0, ""
	}
	if r.to == "" || strings.Contains(req.URL.RawQuery, "followed") {
		return 0, ""
	}
	return r.code, r.to + req.URL.Path
}

func (r *redirector) set(code int, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code, r.to = code, to
}

// requests has the requests of every kind of client, by method. Reads include a watch.
func (r *redirector) requests(ctx context.Context, t *testing.T, c *client.Client) map[string]func() error {
	t.Helper()
	typed, err := kubernetes.NewForConfig(c.Config())
	testkit.NoError(t, err)
	dynamics, err := dynamic.NewForConfig(c.Config())
	testkit.NoError(t, err)
	metadatas, err := metadata.NewForConfigAndClient(c.Config(), c.HTTPClient())
	testkit.NoError(t, err)
	secret := func() *corev1.Secret {
		return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, StringData: map[string]string{"password": "swordfish"}}
	}
	untyped := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "swordfish"}}}
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	handle := client.For[*corev1.Secret](c)
	return map[string]func() error{
		"GET typed": func() error { _, err := typed.CoreV1().Secrets("ns").Get(ctx, "s", metav1.GetOptions{}); return err },
		"GET watch": func() error {
			w, err := typed.CoreV1().Secrets("ns").Watch(ctx, metav1.ListOptions{})
			return stopped(w, err)
		},
		"GET dynamic": func() error {
			_, err := dynamics.Resource(resource).Namespace("ns").Get(ctx, "s", metav1.GetOptions{})
			return err
		},
		"GET metadata": func() error {
			_, err := metadatas.Resource(resource).Namespace("ns").Get(ctx, "s", metav1.GetOptions{})
			return err
		},
		"GET watch of metadata": func() error {
			w, err := metadatas.Resource(resource).Namespace("ns").Watch(ctx, metav1.ListOptions{})
			return stopped(w, err)
		},
		"GET handle": func() error { _, err := handle.GetLive(ctx, name("ns", "s")); return err },
		"POST typed": func() error {
			_, err := typed.CoreV1().Secrets("ns").Create(ctx, secret(), metav1.CreateOptions{})
			return err
		},
		"POST dynamic": func() error {
			_, err := dynamics.Resource(resource).Namespace("ns").Create(ctx, untyped.DeepCopy(), metav1.CreateOptions{})
			return err
		},
		"POST handle": func() error { _, err := handle.Create(ctx, secret()); return err },
		"PUT typed": func() error {
			_, err := typed.CoreV1().Secrets("ns").Update(ctx, secret(), metav1.UpdateOptions{})
			return err
		},
		"PATCH metadata": func() error {
			_, err := metadatas.Resource(resource).Namespace("ns").Patch(ctx, "s", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		"DELETE typed": func() error { return typed.CoreV1().Secrets("ns").Delete(ctx, "s", metav1.DeleteOptions{}) },
	}
}

func TestRedirectsElsewhereAndOfWritesAreRefused(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		r := newRedirector(t)
		c, err := client.New(r.cfg, client.Options{})
		testkit.NoError(t, err)
		defer c.Close()
		port := strings.TrimPrefix(r.api.URL, "https://127.0.0.1:")
		l := journal.New(journal.Origin{Controller: "website"})
		for where, to := range map[string]string{"another host": r.other.URL, "another name": "https://localhost:" + port, "another scheme": "http://127.0.0.1:" + port, "with a password": "https://a:b@127.0.0.1:" + port, "here": r.api.URL, "no URL": ":%"} {
			r.set(code, to)
			for request, do := range r.requests(journal.With(t.Context(), l), t, c) {
				method, _, _ := strings.Cut(request, " ")
				err := do()
				if method == "GET" && where == "here" {
					testkit.ErrorContains(t, err, "stopped after 10 redirects", fmt.Sprintf("%d %s, %s", code, where, request))
					continue
				}
				reads, u := "and only reads are redirected; ", originOf(to)
				if method == "GET" {
					reads = "and the credentials are for this server alone; "
				}
				if where == "no URL" {
					reads = "which is not followed; "
				}
				want := fmt.Sprintf("client: %s %s/api/v1/namespaces/ns/secrets", method, r.api.URL)
				rest := fmt.Sprintf(": the answer %d %s redirects to %s, %sset the address that serves the API itself as server in the kubeconfig, or as rest.Config.Host", code, http.StatusText(code), u, reads)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), rest) || strings.Contains(err.Error(), "a:b") {
					t.Errorf("%d %s, %s: %v\nwant %s…%s", code, where, request, err, want, rest)
				}
			}
		}
		r.mu.Lock()
		for _, caught := range r.caught {
			t.Errorf("%d: the other server was sent %s", code, caught)
		}
		r.mu.Unlock()
		for _, w := range l.Writes() {
			t.Errorf("%d: the ledger has a write: %v", code, w)
		}
	}
}

func stopped(w watch.Interface, err error) error {
	if err == nil {
		w.Stop()
	}
	return err
}

func originOf(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return "an address that is no URL"
	}
	return u.Scheme + "://" + u.Host
}

// A read may be sent elsewhere on the same server, as by a proxy in front of it.
func TestRedirectsOfReadsOnTheSameServerAreFollowed(t *testing.T) {
	r := newRedirector(t)
	var answered []int
	c, err := client.New(r.cfg, client.Options{Hook: hook.On(func(a *hook.APIAnswer) { answered = append(answered, a.Status) })})
	testkit.NoError(t, err)
	defer c.Close()
	upper := strings.Replace(r.api.URL, "https", "HTTPS", 1)
	resp, err := c.HTTPClient().Get(r.api.URL + "/api/v1/namespaces/ns/secrets/s")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	for _, to := range []string{r.api.URL + "/?followed=", upper + "/?followed="} {
		r.set(307, to)
		resp, err := c.HTTPClient().Get(r.api.URL + "/api/v1/namespaces/ns/secrets/s")
		testkit.NoError(t, err)
		resp.Body.Close()
	}
	if len(answered) != 5 || answered[1] != 307 {
		t.Errorf("the answers were %v", answered)
	}
}
