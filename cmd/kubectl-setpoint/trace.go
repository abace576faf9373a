// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// traced is a line of /debug/trace. Error is set if the trace has ended because of it.
type traced struct {
	Controller   string          `json:"controller"`
	Key          string          `json:"key"`
	ReconcileID  string          `json:"reconcileID"`
	Began        time.Time       `json:"began"`
	Took         time.Duration   `json:"took"`
	Because      []string        `json:"because"`
	Outcome      string          `json:"outcome"`
	Error        string          `json:"error"`
	RequeueAfter time.Duration   `json:"requeueAfter"`
	Reads        []tracedRead    `json:"reads"`
	Requests     []tracedRequest `json:"requests"`
	Lost         int             `json:"lost"`
}

type tracedRead struct {
	Kind    string      `json:"kind"`
	Object  string      `json:"object"`
	Missing bool        `json:"missing"`
	Value   tracedValue `json:"value"`
}

type tracedRequest struct {
	Request string        `json:"request"`
	Status  int           `json:"status"`
	Took    time.Duration `json:"took"`
	Error   string        `json:"error"`
	Effect  string        `json:"effect"`
	Version string        `json:"version"`
	Value   tracedValue   `json:"value"`
}

type tracedValue struct {
	JSON   json.RawMessage `json:"json"`
	Hidden string          `json:"hidden"`
}

const (
	longestTrace = 10 * time.Minute
	mostLine     = 64 << 20 // bytes of a Reconcile
)

func (p *plugin) traceCommand() *cobra.Command {
	limit := longestTrace
	c := &cobra.Command{
		Use:   "trace KIND [NAMESPACE/]NAME",
		Short: "Show each Reconcile of an object as it ends, with values",
		Long: `Show each Reconcile of an object as it ends: its cause, what it read from caches, its requests,
and which fields have changed since the trace saw the object before. It has values of objects, except
Secrets, so the operator must allow it with debug.Options.Values.

The trace ends after --for, or with Ctrl-C. KIND and NAME are as in why.`,
		Example: `  kubectl setpoint trace website shop/web --lease website-operator --operator-namespace operators
  kubectl setpoint trace website shop/web --url http://localhost:6060 --for 1m -o json`,
		Args: cobra.RangeArgs(1, 2),
	}
	c.Flags().DurationVar(&limit, "for", limit, "When the trace ends, at most 10m")
	c.RunE = func(c *cobra.Command, args []string) error {
		if limit < time.Second || limit > longestTrace {
			return fmt.Errorf("--for: %s; use 1s to %s", limit, longestTrace)
		}
		return p.trace(c.Context(), args, limit)
	}
	return c
}

// line is what one replica said.
type line struct {
	replica string
	text    json.RawMessage
}

func (p *plugin) trace(ctx context.Context, args []string, limit time.Duration) error {
	o, replicas, err := p.objectAndReplicas(ctx, args)
	if err != nil {
		return err
	}
	query := url.Values{"kind": {o.Kind}, "namespace": {o.Namespace}, "name": {o.Name}, "seconds": {strconv.Itoa(int(limit.Seconds()))}}
	lines := make(chan line)
	answers := make([]answer, len(replicas))
	var following sync.WaitGroup
	for i, r := range replicas {
		following.Go(func() {
			defer r.close()
			answers[i].Replica = r.name
			if err := r.follow(ctx, "/debug/trace", query, func(text json.RawMessage) { lines <- line{r.name, text} }); err != nil && ctx.Err() == nil {
				answers[i].Error = err.Error()
			}
		})
	}
	go func() { // joined by the loop
		following.Wait()
		close(lines)
	}()
	seen := objects{}
	for l := range lines {
		if err := p.show(l, seen); err != nil {
			p.diag.line("%s: %s", l.replica, err)
		}
	}
	failures := failuresOf(answers)
	if len(failures) > 0 && len(failures) == len(answers) {
		return fmt.Errorf("no replica traces the object: %s", strings.Join(failures, "; "))
	}
	return nil
}

// follow passes the lines of an answer, as they come.
func (r *replica) follow(ctx context.Context, path string, query url.Values, do func(json.RawMessage)) error {
	response, err := r.open(ctx, http.MethodGet, asked(path, query), nil)
	if err != nil {
		return r.explain(ctx, err)
	}
	defer response.Body.Close()
	all := bufio.NewScanner(response.Body)
	all.Buffer(nil, mostLine)
	for all.Scan() {
		if text := all.Bytes(); len(text) > 0 {
			do(bytes.Clone(text))
		}
	}
	return r.explain(ctx, all.Err())
}

func (p *plugin) show(l line, seen objects) error {
	if !json.Valid(l.text) {
		return errors.New("a line is not JSON; does another server listen there?")
	}
	if p.output == "json" {
		return p.out.json(map[string]any{"replica": l.replica, "reconcile": l.text})
	}
	var t traced
	if err := json.Unmarshal(l.text, &t); err != nil {
		return fmt.Errorf("a line has another form than expected: %w", err)
	}
	if t.Controller == "" {
		return errors.New(t.Error)
	}
	if t.Lost > 0 {
		p.out.line("%d Reconciles were too fast to be shown", t.Lost)
	}
	after := ""
	if t.RequeueAfter > 0 {
		after = ", again in " + t.RequeueAfter.String()
	}
	p.out.line("%s %s %s: %s after %s%s (%s)", t.Began.Local().Format("15:04:05.000"), t.Controller, t.Key, t.Outcome, round(t.Took), after, t.ReconcileID)
	if t.Error != "" {
		p.out.line("  error: %s", t.Error)
	}
	for _, because := range t.Because {
		p.out.line("  %s", because)
	}
	for _, r := range t.Reads {
		p.showRead(r, seen)
	}
	for _, r := range t.Requests {
		p.showRequest(r, seen)
	}
	return nil
}

func (p *plugin) showRead(r tracedRead, seen objects) {
	if r.Missing {
		p.out.line("  read %s %s: the cache does not have it", r.Kind, r.Object)
		return
	}
	version, changes := seen.look(r.Value)
	p.out.line("  read %s %s%s", r.Kind, r.Object, version)
	p.showChanges(changes)
}

func (p *plugin) showRequest(r tracedRequest, seen objects) {
	text := fmt.Sprintf("  %s: ", r.Request)
	switch {
	case r.Error != "":
		text += r.Error
	default:
		text += strconv.Itoa(r.Status)
	}
	if text += fmt.Sprintf(" after %s", round(r.Took)); r.Effect != "" {
		text += ", " + r.Effect
	}
	if r.Version != "" {
		text += " at version " + r.Version
	}
	_, changes := seen.look(r.Value)
	p.out.line("%s", text)
	p.showChanges(changes)
}

func (p *plugin) showChanges(changes []string) {
	for _, c := range changes {
		p.out.line("    %s", c)
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
