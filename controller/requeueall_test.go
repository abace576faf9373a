// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// replayed is a source that can deliver its keys again.
type replayed struct {
	*fakeSource

	to  source.Sink[string]
	err error
}

func (r *replayed) Run(ctx context.Context, to source.Sink[string]) error {
	r.to = to
	return r.fakeSource.Run(ctx, to)
}

func (r *replayed) Replay(context.Context) error {
	if r.err == nil {
		r.to.Queue.AddAll(r.initial, workqueue.AddOptions{Class: workqueue.Background})
	}
	return r.err
}

// TestRequeueAll_AllSources: it replays each source that can, names one that fails, and does
// nothing before Warm.
func TestRequeueAll_AllSources(t *testing.T) {
	seen := make(chan string, 10)
	c := newController(func(_ context.Context, key string) (controller.Result, error) {
		seen <- key
		return controller.Result{}, nil
	}, controller.Options{})
	src := &replayed{fakeSource: newSource("replayed", "a")}
	c.Watch(src)
	c.Watch(newSource("other"))
	ok(t, c.RequeueAll(t.Context()))
	stop := start(t, c)
	<-seen
	ok(t, c.RequeueAll(t.Context()))
	<-seen
	src.err = errors.New("it has stopped")
	testkit.Equal(t, fmt.Sprint(c.RequeueAll(t.Context())), `controller "test": Fake(replayed): it has stopped`, "a source that fails")
	ok(t, stop())
}
