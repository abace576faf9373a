// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

// lateWrites is an owner that records late writes.
type lateWrites struct{ all []*ledger.LateWriteError }

func (*lateWrites) Decodes(schema.GroupResource) bool { return false }

func (l *lateWrites) Late(err *ledger.LateWriteError) { l.all = append(l.all, err) }

// TestC6_CloseRefusesWrites: Close refuses writes and nothing else (C6). A write in flight is
// recorded to its end.
func TestC6_CloseRefusesWrites(t *testing.T) {
	begun, answering := make(chan struct{}), make(chan struct{})
	server := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			close(begun)
			<-answering
		}
		return ok(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"7"}}`).RoundTrip(r)
	})
	c, err := client.New(&rest.Config{Host: "http://localhost", Transport: server}, client.Options{})
	testkit.NoError(t, err)
	told := &lateWrites{}
	l := journal.New(journal.Origin{Controller: "test", Key: "k", Owner: told})
	do := func(method, path, body string) error {
		req, err := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://localhost"+path, strings.NewReader(body))
		testkit.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.HTTPClient().Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	underWay := make(chan error, 1)
	go func() { underWay <- do(http.MethodPut, maps+"/x", "{}") }()
	<-begun
	l.Close()
	var late *ledger.LateWriteError
	if err := do(http.MethodPost, maps, "{}"); !errors.As(err, &late) || len(told.all) != 1 || told.all[0] != late || late.Request.Verb != "create" {
		t.Errorf("a create after Close: %v, told %v", err, told.all)
	}
	for request, err := range map[string]error{
		"get":     do(http.MethodGet, maps+"/x", ""),
		"dry run": do(http.MethodPost, maps+"?dryRun=All", "{}"),
		"review":  do(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "{}"),
	} {
		testkit.Equal(t, err, nil, fmt.Sprintf("%s after Close", request))
	}
	close(answering)
	testkit.Equal(t, <-underWay, nil)
	if w := l.Writes(); len(w) == 0 || w[0].Effect != ledger.Stored || w[0].ResourceVersion != "7" {
		t.Errorf("the write that was under way: %+v", w)
	}
}
