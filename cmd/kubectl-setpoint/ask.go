// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	atOnce     = 16        // replicas
	mostAnswer = 512 << 20 // bytes: the state of a million keys
	mostError  = 1 << 10   // bytes
)

// replica is one process of the operator.
type replica struct {
	name    string // of the Pod, or the URL
	base    string // of the URLs, without a slash at the end
	timeout time.Duration
	http    *http.Client
	tunnel  *tunnel // nil: http needs none
}

// get returns the JSON at a path.
func (r *replica) get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	return r.send(ctx, http.MethodGet, asked(path, query), nil)
}

// asked returns a path with a query.
func asked(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// send sends a request, with JSON or without a body, and returns the JSON of the answer.
func (r *replica) send(ctx context.Context, method, path string, body io.Reader) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	response, err := r.open(ctx, method, path, body)
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	path, _, _ = strings.Cut(path, "?")
	switch {
	case err != nil:
		return nil, r.explain(ctx, err)
	case len(text) > mostAnswer:
		return nil, fmt.Errorf("its answer to %s has more than %d MiB", path, mostAnswer>>20)
	case !json.Valid(text):
		return nil, fmt.Errorf("its answer to %s is not JSON; does another server listen there?", path)
	}
	return text, nil
}

// open returns an answer with the status 200, until ctx ends.
func (r *replica) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	if r.tunnel != nil {
		if err := r.tunnel.connect(ctx); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		path, _, _ = strings.Cut(path, "?")
		return nil, refusal(path, response)
	}
	return response, nil
}

// explain names the timeout, and leaves out the URL, which the name of the replica makes redundant.
func (r *replica) explain(ctx context.Context, err error) error {
	var inRequest *url.Error
	var late net.Error // a dialer may time out just before ctx ends
	var refused *forwardError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("no answer within %s; see --timeout", r.timeout)
	case errors.As(err, &inRequest):
		return inRequest.Err
	}
	return err
}

// refusal returns the error of an answer other than 200.
func refusal(path string, response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, mostError)) // the status is enough
	said := strings.TrimSpace(string(text))
	switch response.StatusCode {
	case http.StatusBadRequest, http.StatusConflict:
		return errors.New(said)
	case http.StatusNotFound:
		if strings.HasPrefix(said, "no ") { // the sentence of package debug about a name
			return errors.New(said)
		}
		return fmt.Errorf("it does not serve %s; add the debug endpoints to the operator (package debug), or update it", path)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("it refuses to answer (%s): %s", response.Status, said)
	}
	return fmt.Errorf("it answered %s: %s", response.Status, said)
}

func (r *replica) close() {
	r.http.CloseIdleConnections()
	if r.tunnel != nil {
		r.tunnel.close()
	}
}

// An answer is what one replica said. Either Answer or Error is set.
type answer struct {
	Replica string          `json:"replica"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// got is an answer as Go value.
type got[T any] struct {
	replica string
	value   T
}

// fetch gets an answer from one replica.
type fetch func(ctx context.Context, r *replica) (json.RawMessage, error)

// path returns a fetch of the JSON at a path.
func path(path string, query url.Values) fetch {
	return func(ctx context.Context, r *replica) (json.RawMessage, error) { return r.get(ctx, path, query) }
}

// findAndAsk asks the replicas that the flags name.
func findAndAsk[T any](ctx context.Context, p *plugin, f fetch) ([]got[T], error) {
	replicas, err := p.find(ctx)
	if err != nil {
		return nil, err
	}
	return ask[T](ctx, p, replicas, f)
}

// ask asks all replicas at the same time, and returns the answers in the order of the replicas.
// Errors of some replicas are lines on standard error. With -o json it prints the answers.
func ask[T any](ctx context.Context, p *plugin, replicas []*replica, f fetch) ([]got[T], error) {
	answers, values := make([]answer, len(replicas)), make([]T, len(replicas))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, r := range replicas {
		g.Go(func() error {
			defer r.close()
			answers[i] = answer{Replica: r.name}
			text, err := f(ctx, r)
			if err == nil {
				if err = json.Unmarshal(text, &values[i]); err != nil {
					err = fmt.Errorf("its answer has another form than expected: %w", err)
				}
			}
			if err != nil {
				answers[i].Error = err.Error()
			} else {
				answers[i].Answer = text
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	var all []got[T]
	for i, a := range answers {
		if a.Error == "" {
			all = append(all, got[T]{a.Replica, values[i]})
		}
	}
	failures := failuresOf(answers)
	if len(all) == 0 {
		return nil, fmt.Errorf("no replica answered: %s", strings.Join(failures, "; "))
	}
	for _, text := range failures {
		p.diag.line("%s", text)
	}
	if p.output == "json" {
		return all, p.out.json(map[string]any{"replicas": answers})
	}
	return all, nil
}

// failuresOf returns a line for each different error, with the replicas that have it.
func failuresOf(answers []answer) []string {
	var texts []string
	names := map[string][]string{}
	for _, a := range answers {
		if a.Error == "" {
			continue
		}
		if names[a.Error] == nil {
			texts = append(texts, a.Error)
		}
		names[a.Error] = append(names[a.Error], a.Replica)
	}
	for i, text := range texts {
		texts[i] = strings.Join(names[text], ", ") + ": " + text
	}
	return texts
}
