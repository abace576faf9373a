// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
)

// Options configures Run.
type Options struct {
	// Config reaches a cluster where the namespace exists.
	Config    *rest.Config
	Namespace string
	// Contestant is the name in the table. Command returns a new process of it, which prints "ready
	// HOST:PORT" when it serves, answers with Handler, and ends when its standard input ends.
	Contestant string
	Command    func() *exec.Cmd
	// Replicas is the number of processes, Rate the number of requests in a second.
	Replicas, Rate int
	// Rotations is when Run ends. One replica is killed every KillEvery rotations.
	Rotations, KillEvery int
	// Hard kills without removing the replica from the balancer first.
	Hard bool
	// Progress is called after each rotation. Default: none.
	Progress func(Result)
}

type race struct {
	o        Options
	client   *client.Client
	balancer *balancer
	replicas []*replica
	load     *load
	seen     map[string]bool // certificates
}

// Run installs the webhooks, starts the replicas, and measures until enough rotations have
// happened or ctx ends.
func Run(ctx context.Context, o Options) (result Result, err error) {
	c, err := client.New(o.Config, client.Options{FieldOwner: "rotation-load"})
	if err != nil {
		return result, err
	}
	defer c.Close()
	b, err := newBalancer()
	if err != nil {
		return result, err
	}
	var balancing sync.WaitGroup
	balancing.Go(b.serve)
	defer balancing.Wait()
	defer b.Close()
	r := &race{o: o, client: c, balancer: b, seen: map[string]bool{}}
	if err := install(ctx, c, "https://"+b.Addr().String()); err != nil {
		return result, err
	}
	defer uninstall(context.WithoutCancel(ctx), c)
	defer r.killAll()
	for range o.Replicas {
		if err := r.startReplica(ctx); err != nil {
			return result, err
		}
	}
	r.load = &load{lamps: client.ForKind[*unstructured.Unstructured](c, lamps), namespace: o.Namespace, rate: o.Rate}
	if err := r.load.first(ctx); err != nil {
		return result, fmt.Errorf("the webhooks do not answer: %w; a replica's last output:\n%s", err, &r.replicas[0].errs)
	}
	return r.measure(ctx)
}

func (r *race) measure(ctx context.Context) (Result, error) {
	begun := time.Now()
	loading, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.load.run(loading) })
	err := r.follow(ctx)
	end()
	running.Wait()
	result := r.load.result
	result.Contestant, result.Took = r.o.Contestant, time.Since(begun)
	return result, err
}

// follow counts rotations and kills replicas.
func (r *race) follow(ctx context.Context) error {
	h := client.ForKind[*unstructured.Unstructured](r.client, configurations)
	only := client.ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", Configuration)}
	for event, err := range h.WatchLive(ctx, only) {
		if err != nil {
			return err
		}
		now := r.count(certificates(event.Object))
		if now.Rotations >= r.o.Rotations {
			return nil
		}
		if r.o.KillEvery > 0 && now.Rotations/r.o.KillEvery > now.Kills {
			if err := r.kill(ctx); err != nil {
				return err
			}
		}
	}
	return errors.New("the watch ended")
}

// count adds new certificates to the result.
func (r *race) count(all []string) Result {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	before := len(r.seen)
	for _, each := range all {
		r.seen[each] = true
	}
	r.load.result.Rotations = max(len(r.seen)-1, 0)
	if now := r.load.result; len(r.seen) > before && r.o.Progress != nil {
		r.o.Progress(now)
	}
	return r.load.result
}

func (r *race) startReplica(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestStart)
	defer cancel()
	started, err := start(ctx, r.o.Command())
	if err != nil {
		return err
	}
	r.replicas = append(r.replicas, started)
	r.balancer.add(started.address)
	return nil
}

// kill replaces the oldest replica. Its successor starts afterwards.
func (r *race) kill(ctx context.Context) error {
	old := r.replicas[0]
	r.replicas = r.replicas[1:]
	if !r.o.Hard {
		r.balancer.remove(old.address)
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		r.balancer.drain(limited, old.address)
	}
	old.kill()
	r.balancer.remove(old.address)
	r.load.mu.Lock()
	r.load.result.Kills++
	r.load.mu.Unlock()
	return r.startReplica(ctx)
}

func (r *race) killAll() {
	for _, each := range r.replicas {
		r.balancer.remove(each.address)
		each.kill()
	}
}
