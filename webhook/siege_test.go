// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Fleet is a kind whose JSON `{}` can be a struct of 1 KB.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FleetSpec `json:"spec,omitempty"`
}

type FleetSpec struct {
	Page  string                   `json:"page,omitempty"`
	Ships []corev1.PodTemplateSpec `json:"ships,omitempty"`
}

// FleetBeta is an older version of Fleet.
type FleetBeta Fleet

func (f *Fleet) DeepCopyObject() runtime.Object     { return copyOf(f) }
func (f *FleetBeta) DeepCopyObject() runtime.Object { return copyOf(f) }

// besieged is the environment variable that makes the test binary an operator.
const besieged = "SETPOINT_BESIEGED"

// limits of the operator's process
const (
	maxMemory = 300 << 20
	grace     = 2 * time.Second
	maxStop   = grace + 3*time.Second
)

// report is what the operator writes to its output after its stop.
type report struct {
	Memory uint64 // the most that the Go runtime has held
	Stop   time.Duration
	Error  string
}

// operate serves webhooks until its input ends.
func operate() int {
	scheme := shops()
	for version, obj := range map[string]runtime.Object{"v1": &Fleet{}, "v1beta1": &FleetBeta{}} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: version, Kind: "Fleet"}, obj)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hooks := webhook.New(webhook.Options{
		Name: "fleet-operator", Scheme: scheme, Service: types.NamespacedName{Namespace: "fleet-system", Name: "fleet"},
		Server: server.Options{Listener: l, CertDir: os.Getenv(besieged)},
	})
	webhook.AddConversion(hooks, func(from *FleetBeta, to *Fleet) error { to.Spec = from.Spec; return nil },
		func(from *Fleet, to *FleetBeta) error { to.Spec = from.Spec; return nil })
	webhook.AddDefaulter(hooks, func(_ context.Context, f *Fleet) error { f.Spec.Page = "new" + f.Spec.Page; return nil }, webhook.Registration{})
	m := manager.New(&rest.Config{Host: sim.Host, Transport: newAPI()}, manager.Options{
		Name: "fleet-operator", Grace: grace, Logger: slog.New(slog.DiscardHandler),
	})
	hooks.AddTo(m)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var stopped time.Time
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stopped = time.Now()
		stop()
	}()
	most, end := make(chan uint64), make(chan struct{})
	go func() { most <- mostMemory(end) }()
	fmt.Println(l.Addr())
	var r report
	if err := m.Run(ctx); err != nil {
		r.Error = err.Error()
	}
	r.Stop = time.Since(stopped)
	close(end)
	r.Memory = <-most
	_ = json.NewEncoder(os.Stdout).Encode(r)
	return 0
}

// mostMemory samples the memory of the Go runtime, which returns it to the kernel only slowly.
func mostMemory(end <-chan struct{}) (most uint64) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics.Read(samples)
		most = max(most, samples[0].Value.Uint64()-samples[1].Value.Uint64())
		select {
		case <-tick.C:
		case <-end:
			return most
		}
	}
}

// attack is a request of an anonymous client: head, then part as often as it fits into size, then
// tail. A truncated one ends early, a slow one never ends.
type attack struct {
	name             string
	path             string
	head, part, tail string
	size             int
	truncated, slow  bool
}

const (
	fleetHead = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1","desiredAPIVersion":"` + group + `/v1","objects":[`
	fleetBeta = `{"apiVersion":"` + group + `/v1beta1","kind":"Fleet","metadata":{"name":"a"`
	fleetRest = `]}}`
	reviewed  = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","operation":"CREATE","kind":{"group":"` + group +
		`","version":"v1","kind":"Fleet"},"object":{"apiVersion":"` + group + `/v1","kind":"Fleet","metadata":{"name":"a"}`
	defaultFleet = "/default.fleets.shops.example.com"
)

func attacks() []attack {
	const most = 7 << 20 // the largest body
	object := `,` + fleetBeta + `},"spec":{"page":"x"}}`
	pods := strings.Repeat("{},", 7_000)
	return []attack{
		{name: "a huge list", path: "/convert", head: fleetHead + fleetBeta + `}}`, part: object, tail: fleetRest, size: 120 << 20},
		{name: "a list", path: "/convert", head: fleetHead + fleetBeta + `}}`, part: object, tail: fleetRest, size: most},
		{name: "tiny objects", path: "/convert", head: fleetHead + `{}`, part: ",{}", tail: fleetRest, size: most},
		{name: "a large text", path: "/convert", head: fleetHead + fleetBeta + `},"spec":{"page":"`, part: "<&\xff", tail: `"}}` + fleetRest, size: most},
		{name: "empty structs", path: "/convert", head: fleetHead + fleetBeta + `},"spec":{"ships":[{}`, part: ",{}", tail: `]}}` + fleetRest, size: most},
		{name: "fewer empty structs", path: "/convert", head: fleetHead + fleetBeta + `},"spec":{"ships":[`, part: pods, tail: `{}]}}` + fleetRest, size: 22_000},
		{name: "deep nesting", path: "/convert", head: fleetHead + fleetBeta + `,"x":[`, part: "[", size: most},
		{name: "many labels", path: "/convert", head: fleetHead + fleetBeta + `,"labels":{"a":"b"`, part: `,"a":""`, tail: `}}}` + fleetRest, size: most},
		{name: "a truncated body", path: "/convert", head: fleetHead + fleetBeta + `},"spec":{"page":"`, part: "0123456789", size: most, truncated: true},
		{name: "a slow body", path: "/convert", head: fleetHead + fleetBeta + `},"spec":{"page":"`, part: "0123456789", size: most, slow: true},
		{name: "an admission with deep nesting", path: defaultFleet, head: reviewed + `,"x":[`, part: strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + ",", tail: `1]}}}`, size: 60 << 10},
		{name: "an admission with deeper nesting", path: defaultFleet, head: reviewed + `,"x":`, part: "[", size: most},
		{name: "an admission of a text", path: defaultFleet, head: reviewed + `,"spec":{"page":"`, part: "\u2028<&", tail: `"}}}}`, size: 4 << 20},
		{name: "an admission of a large text", path: defaultFleet, head: reviewed + `,"spec":{"page":"`, part: "<&\xff", tail: `"}}}}`, size: most},
		{name: "an admission of tiny objects", path: defaultFleet, head: reviewed + `,"x":[{}`, part: ",{}", tail: `]}}}`, size: most},
		{name: "an admission of empty structs", path: defaultFleet, head: reviewed + `,"spec":{"ships":[`, part: pods, tail: `{}]}}}}`, size: 22_000},
		{name: "an admission with many groups", path: defaultFleet, head: reviewed + `},"userInfo":{"groups":[""`, part: `,""`, tail: `]}}}`, size: most},
	}
}

// send sends the attack once. The context ends it.
func (a attack) send(ctx context.Context, c *http.Client, url string) {
	parts := (a.size - len(a.head) - len(a.tail)) / len(a.part)
	length := len(a.head) + parts*len(a.part) + len(a.tail)
	if a.slow || a.truncated {
		parts -= 1 + 100_000/len(a.part)
	}
	body, in := io.Pipe()
	defer body.Close()
	// A transport whose connection has ended waits for a Read of the body, and not for ctx.
	defer context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })()
	var sending sync.WaitGroup
	defer sending.Wait()
	defer in.Close()
	sending.Go(func() {
		_, err := io.WriteString(in, a.head)
		many := 1 + 60_000/len(a.part)
		block := strings.Repeat(a.part, many)
		for ; parts > 0 && err == nil; parts -= many {
			_, err = io.WriteString(in, block[:min(parts, many)*len(a.part)])
		}
		switch {
		case a.slow:
			return // the body is open until the answer
		case a.truncated:
			in.CloseWithError(errors.New("truncated"))
			return
		case err == nil:
			_, _ = io.WriteString(in, a.tail)
		}
		in.Close()
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+a.path, body)
	if err != nil {
		return
	}
	r.ContentLength = int64(length)
	r.Header.Set("Content-Type", "application/json")
	if answer, err := c.Do(r); err == nil {
		answer.Body.Close()
	}
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // self-signed
}

// valid is a call of the API server.
type valid struct {
	name, path, body, want string
	timeout                time.Duration
	times                  int
}

func valids() (all []valid) {
	for name, size := range map[string]int{"1 KB": 1 << 10, "40 KB": 40 << 10, "400 KB": 400 << 10, "1.4 MB": 1_400_000} {
		page := strings.Repeat("0123456789", size/10)
		times, timeout := 5, 30*time.Second
		if size < 1<<20 {
			timeout = 10 * time.Second // the default of an admission
		}
		if size < 100<<10 {
			times = 50
		}
		all = append(all,
			valid{"a conversion of " + name, "/convert", fleetHead + fleetBeta + `},"spec":{"page":"` + page + `"}}` + fleetRest, `"status":"Success"`, 30 * time.Second, times},
			valid{"an admission of " + name, defaultFleet + "?timeout=" + timeout.String(), reviewed + `,"spec":{"page":"` + page + `"}}}}`, `"allowed":true`, timeout, times})
	}
	return all
}

// call tries again after a 503 with Retry-After, within the timeout, as the API server does.
func (v valid) call(ctx context.Context, c *http.Client, url string) (retries int, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	for {
		answer, text, err := v.post(ctx, c, url)
		switch {
		case err != nil:
			return retries, err
		case answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "":
			retries++
		case answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(v.want)):
			return retries, fmt.Errorf("%s: %.200s", answer.Status, text)
		default:
			return retries, nil
		}
	}
}

func (v valid) post(ctx context.Context, c *http.Client, url string) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+v.path, strings.NewReader(v.body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, text, err
}

// startOperator starts the test binary as an operator, and returns its URL.
func startOperator(t *testing.T) (url string, stop func() report) {
	t.Helper()
	dir, _ := certDir(t)
	binary, err := os.Executable()
	testkit.NoError(t, err)
	operator := exec.CommandContext(t.Context(), binary)
	operator.Env = append(os.Environ(), besieged+"="+dir)
	operator.Stderr = os.Stderr
	in, err := operator.StdinPipe()
	testkit.NoError(t, err)
	out, err := operator.StdoutPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, operator.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the operator does not start")
	}
	return "https://" + lines.Text(), func() (r report) {
		in.Close()
		lines.Scan()
		err := json.Unmarshal(lines.Bytes(), &r)
		testkit.NoError(t, errors.Join(err, operator.Wait()))
		return r
	}
}

// TestA6_ASiegeIsWithstood attacks an operator over 64 connections. Its memory stays bounded, it
// answers the API server's calls, and a stop during the attack ends in time.
func TestA6_ASiegeIsWithstood(t *testing.T) {
	if testing.Short() {
		t.Skip("attacks a process for half a minute")
	}
	url, stop := startOperator(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var attackers, calls sync.WaitGroup
	kinds := attacks()
	sent := make([]atomic.Int64, len(kinds))
	for i := range 64 {
		attackers.Go(func() {
			k := i % len(kinds)
			c := newClient()
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				kinds[k].send(ctx, c, url)
				sent[k].Add(1)
			}
		})
	}
	for _, v := range valids() {
		calls.Go(func() {
			c := newClient()
			defer c.CloseIdleConnections()
			var slowest time.Duration
			all := 0
			for range v.times {
				began := time.Now()
				retries, err := v.call(ctx, c, url)
				if err != nil {
					t.Errorf("%s: after %s and %d retries: %v", v.name, time.Since(began), retries, err)
				}
				all += retries
				slowest = max(slowest, time.Since(began))
			}
			t.Logf("%s: %d calls, %d retries, the slowest took %s", v.name, v.times, all, slowest)
		})
	}
	calls.Wait()
	r := stop()
	end()
	attackers.Wait()
	for k := range kinds {
		t.Logf("%s: sent %d times", kinds[k].name, sent[k].Load())
	}
	t.Logf("the operator has held %d MiB; its stop took %s", r.Memory>>20, r.Stop)
	testkit.AtMost(t, r.Memory, maxMemory)
	if r.Stop > maxStop || r.Error != "" {
		t.Errorf("the stop took %s, more than %s: %s", r.Stop, maxStop, r.Error)
	}
}
