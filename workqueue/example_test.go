// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// A worker takes keys until the queue is drained. A failed key is retried after its backoff.
func Example() {
	q, err := workqueue.New(workqueue.Options[string]{Name: "website", Backoff: workqueue.Exponential{Base: time.Millisecond}})
	if err != nil {
		panic(err)
	}
	q.Add("default/home")
	q.Add("default/home") // merges with the first

	for done := false; !done; {
		item, ok := q.Get(context.Background())
		if !ok {
			return
		}
		if item.Attempt() == 1 {
			delay, _ := item.Retry(errors.New("the service is not there yet"))
			fmt.Println(item.Key(), "failed, again in", delay)
			continue
		}
		fmt.Println(item.Key(), "succeeded at attempt", item.Attempt())
		done = item.Done() == nil
	}
	fmt.Println("drained:", q.Drain(context.Background()) == nil)
	// Output:
	// default/home failed, again in 1ms
	// default/home succeeded at attempt 2
	// drained: true
}

// Tenants take turns, however many keys each has.
func ExampleOptions_tenants() {
	type key struct{ Namespace, Name string }
	q, err := workqueue.New(workqueue.Options[key]{Tenant: func(k key) string { return k.Namespace }})
	if err != nil {
		panic(err)
	}
	q.AddAll([]key{{"large", "1"}, {"large", "2"}, {"large", "3"}, {"small", "1"}}, workqueue.AddOptions{})
	for q.Len().Ready > 0 {
		item, _ := q.Get(context.Background())
		fmt.Println(item.Key())
		_ = item.Done()
	}
	// Output:
	// {large 1}
	// {small 1}
	// {large 2}
	// {large 3}
}

// Lookup shows why a key is, or is not, being worked on.
func ExampleQueue_Lookup() {
	q, err := workqueue.New(workqueue.Options[string]{})
	if err != nil {
		panic(err)
	}
	q.AddWith("default/home", workqueue.AddOptions{Reason: workqueue.Reason{Source: "deployments", Event: "Update", Object: "default/home"}})
	item, _ := q.Get(context.Background())
	_ = item.Park("waiting for the cache to show the last write", 30*time.Second)

	k, _ := q.Lookup("default/home")
	fmt.Println(k.State, "-", k.ParkReason)
	fmt.Println(k.Reasons[0].Source, k.Reasons[0].Event)
	// Output:
	// parked - waiting for the cache to show the last write
	// deployments Update
}
