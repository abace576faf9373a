// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/setpoint-dev/setpoint/server"
)

// A program without a manager serves a page.
func Example() {
	serve := func(ctx context.Context, l net.Listener) error {
		s, err := server.New(server.Options{Listener: l, Plain: true}) // without Plain: TLS
		if err != nil {
			return err
		}
		page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
		s.Handle("GET /page", page)
		if err := s.Open(ctx); err != nil {
			return err
		}
		// After a stop, requests in flight may finish.
		return s.Serve(ctx, context.WithoutCancel(ctx))
	}

	l, err := server.Listen("localhost:0") // a free port
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	fmt.Println(body("http://" + l.Addr().String() + "/page"))
	stop()
	fmt.Println("stopped:", <-done)
	// Output:
	// hello
	// stopped: <nil>
}

func body(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
