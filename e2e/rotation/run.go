// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/setpoint-dev/setpoint/client"
)

// Options configures Run.
type Options struct {
	// Kubeconfig is a file for a cluster where the namespace exists. The cluster has no other Run.
	Kubeconfig, Namespace string
	// Contestant is the name in the table.
	Contestant string
	// Command returns a new process, which gets its Replica in the environment. It prints "ready
	// HOST:PORT" when it serves, and ends when its standard input ends.
	Command func() *exec.Cmd
	// Replicas is the number of processes, Rate the number of requests in a second.
	Replicas, Rate int
	// Rotations is when Run ends. One replica is killed every KillEvery rotations; 0 kills none.
	Rotations, KillEvery int
	// Hard kills without removing the replica from the balancer first.
	Hard bool
	// Progress is called after each rotation. Default: none.
	Progress func(Result)
}

// race is a cluster with webhooks, a balancer and replicas.
type race struct {
	o         Options
	replica   Replica
	client    *client.Client
	balancer  *balancer
	balancing sync.WaitGroup
	processes []*process
	load      *load
	seen      map[string]bool // CAs in the bundle
}

// Run installs the webhooks, starts the replicas, and measures until enough rotations have
// happened or ctx ends. It leaves its objects in the cluster.
func Run(ctx context.Context, o Options) (result Result, err error) {
	r, err := open(ctx, o)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for range o.Replicas {
		if _, err := r.startReplica(ctx); err != nil {
			return result, err
		}
	}
	if err := r.begin(ctx); err != nil {
		return result, err
	}
	return r.measure(ctx, r.follow)
}

// open installs the webhooks and starts the balancer.
func open(ctx context.Context, o Options) (*race, error) {
	cfg, err := client.LoadConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{FieldOwner: "rotation-load"})
	if err != nil {
		return nil, err
	}
	b, err := newBalancer()
	if err != nil {
		c.Close()
		return nil, err
	}
	r := &race{o: o, client: c, balancer: b, seen: map[string]bool{}, load: newLoad(c, o.Namespace+"-load", o.Rate)}
	r.balancing.Go(b.serve)
	port, _ := b.Addr().(*net.TCPAddr) // newBalancer
	r.replica = Replica{Kubeconfig: o.Kubeconfig, Namespace: o.Namespace, Port: int32(port.Port)}
	if err := install(ctx, c, r.replica); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// close ends all replicas and the balancer.
func (r *race) close() (err error) {
	for _, each := range r.processes {
		r.balancer.remove(each.address)
		err = errors.Join(err, each.kill())
	}
	_ = r.balancer.Close() // it is open
	r.balancing.Wait()
	r.client.Close()
	return err
}

// begin waits until the webhooks answer.
func (r *race) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestStart)
	defer cancel()
	if err := r.load.first(ctx); err != nil {
		return fmt.Errorf("the webhooks do not answer: %w; a replica's last output:\n%s", err, &r.processes[0].errs)
	}
	return nil
}

// measure runs the load until meanwhile returns.
func (r *race) measure(ctx context.Context, meanwhile func(context.Context) error) (Result, error) {
	begun := time.Now()
	loading, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.load.run(loading) })
	err := meanwhile(ctx)
	end()
	ended := time.Now()
	running.Wait()
	result := r.load.result
	for _, last := range r.load.success {
		result.Gap = max(result.Gap, gap(last, ended))
	}
	result.Contestant, result.Took = r.o.Contestant, time.Since(begun)
	return result, err
}

// follow counts rotations and kills replicas.
func (r *race) follow(ctx context.Context) error {
	h := client.ForKind[*unstructured.Unstructured](r.client, configurations)
	only := client.ListOptions{Fields: fields.OneTermEqualSelector("metadata.name", Name)}
	for event, err := range h.WatchLive(ctx, only) {
		if err != nil {
			return err
		}
		now := r.count(bundle(event.Object))
		if now.Rotations >= r.o.Rotations {
			return nil
		}
		if r.o.KillEvery > 0 && now.Rotations/r.o.KillEvery > now.Kills {
			if err := r.replace(ctx); err != nil {
				return err
			}
		}
	}
	return errors.New("the watch ended")
}

// count adds new CAs to the result.
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

// startReplica starts a replica, and gives it connections when it is ready.
func (r *race) startReplica(ctx context.Context) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, longestStart)
	defer cancel()
	cmd := r.o.Command()
	cmd.Env = append(cmd.Environ(), r.replica.environment()...)
	started, err := start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	r.processes = append(r.processes, started)
	r.balancer.add(started.address)
	return started, nil
}

// replace kills the oldest replica and then starts its successor.
func (r *race) replace(ctx context.Context) error {
	if err := r.kill(ctx); err != nil {
		return err
	}
	_, err := r.startReplica(ctx)
	return err
}

// kill kills the oldest replica.
func (r *race) kill(ctx context.Context) error {
	old := r.processes[0]
	r.processes = r.processes[1:]
	if !r.o.Hard {
		r.balancer.remove(old.address)
		limited, cancel := context.WithTimeout(ctx, longestCall)
		defer cancel()
		r.balancer.drain(limited, old.address)
	}
	err := old.kill()
	r.balancer.remove(old.address)
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	r.load.result.Kills++
	return err
}
