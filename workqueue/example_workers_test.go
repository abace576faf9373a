// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// Two workers share a queue, as in client-go's workqueue example. A key that has failed three times
// is dropped.
func ExampleQueue_workers() {
	q, err := workqueue.New(workqueue.Options[string]{Backoff: workqueue.Exponential{Base: time.Millisecond}})
	if err != nil {
		panic(err)
	}
	worker := func() {
		for {
			item, ok := q.Get(context.Background())
			if !ok {
				return // the queue is shut down
			}
			switch err := syncPod(item.Key()); {
			case err == nil:
				fmt.Println("synced", item.Key())
				_ = item.Done()
			case item.Attempt() < 3:
				_, _ = item.Retry(err) // after its backoff
			default:
				fmt.Printf("dropped %s: %v\n", item.Key(), err)
				_ = item.Done()
			}
		}
	}
	q.AddAll([]string{"default/web", "default/broken", "default/web"}, workqueue.AddOptions{})
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(worker)
	}
	_, _ = q.Quiet(context.Background()) // until no key is ready, held or in a short backoff
	q.ShutDown()
	workers.Wait()
	// Unordered output:
	// synced default/web
	// dropped default/broken: no such image
}

// A worker loop that was written for client-go's queue changes only the constructor.
func ExampleQueue_Interface() {
	q, err := workqueue.New(workqueue.Options[string]{Backoff: workqueue.Exponential{Base: time.Millisecond}})
	if err != nil {
		panic(err)
	}
	var queue clientgo.TypedRateLimitingInterface[string] = q.Interface()
	processNextItem := func() bool {
		key, shutdown := queue.Get()
		if shutdown {
			return false
		}
		defer queue.Done(key)
		switch err := syncPod(key); {
		case err == nil:
			fmt.Println("synced", key)
			queue.Forget(key)
		case queue.NumRequeues(key) < 2:
			queue.AddRateLimited(key)
		default:
			fmt.Printf("dropped %s: %v\n", key, err)
			queue.Forget(key)
			queue.ShutDown()
		}
		return true
	}
	queue.Add("default/web")
	queue.Add("default/broken")
	for processNextItem() {
	}
	// Output:
	// synced default/web
	// dropped default/broken: no such image
}

func syncPod(key string) error {
	if key == "default/broken" {
		return errors.New("no such image")
	}
	return nil
}
