// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- serveHealth(ctx, l, ready) }()

	want := func(path string, status int) {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, status)
		}
	}
	want("/healthz", http.StatusOK)
	want("/readyz", http.StatusServiceUnavailable)
	close(ready)
	want("/readyz", http.StatusOK)

	if _, err := Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), l.Addr().String()+" is taken") {
		t.Errorf("a taken address gives the error %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after its end: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}
