// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
)

const burst = 300 // writes at once

// burstResult is what a burst of writes over new connections takes.
type burstResult struct {
	p99, cpu float64 // nanoseconds
	opened   float64 // connections
}

// connections compares the connections of a client with client-go's.
func connections(w *report, rounds int) {
	var ours, theirs []burstResult
	for range rounds {
		for _, c := range []struct {
			own bool
			to  *[]burstResult
		}{{false, &theirs}, {true, &ours}} {
			r, err := burstOver(c.own)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			*c.to = append(*c.to, r)
		}
	}
	fmt.Fprintf(w, "%d writes at once\tsetpoint\tclient-go\tratio\t\n", burst)
	for _, m := range []struct {
		name string
		unit float64
		of   func(burstResult) float64
	}{
		{"connections opened", 1, func(r burstResult) float64 { return r.opened }},
		{"write p99, ms", 1e6, func(r burstResult) float64 { return r.p99 }},
		{"CPU of both ends, ms", 1e6, func(r burstResult) float64 { return r.cpu }},
	} {
		var a, b, ratios []float64
		for i := range ours {
			a, b = append(a, m.of(ours[i])/m.unit), append(b, m.of(theirs[i])/m.unit)
			ratios = append(ratios, m.of(ours[i])/m.of(theirs[i]))
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t\n", m.name, median(a), median(b), median(ratios))
	}
}

func burstOver(own bool) (r burstResult, err error) {
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(30 * time.Millisecond)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that client-go closes at once
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	cfg := &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	var rt http.RoundTripper
	if own {
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			return r, err
		}
		defer c.Disconnect(context.Background())
		rt = c.HTTPClient().Transport
	} else if rt, err = rest.TransportFor(cfg); err != nil {
		return r, err
	}
	took, failed := make([]time.Duration, burst), make([]error, burst)
	var done sync.WaitGroup
	cpu, began := cpuClock(), time.Now()
	for i := range burst {
		done.Go(func() {
			failed[i] = put(rt, s.URL+"/api")
			took[i] = time.Since(began)
		})
	}
	done.Wait()
	slices.Sort(took)
	r = burstResult{p99: float64(took[burst*99/100]), cpu: float64(cpuClock() - cpu), opened: float64(opened.Load())}
	return r, errors.Join(failed...)
}

func put(rt http.RoundTripper, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, bytes.NewReader(make([]byte, 2<<10)))
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
