// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	stdslices "slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard"
)

// churn is a fleet with random faults. Its goroutine alone uses it, but for what is atomic.
type churn struct {
	*fleet

	rand    *rand.Rand
	running []*churned
	calm    atomic.Bool // no new faults
	late    sync.WaitGroup
	edits   bool // of the group's Lease, else of members': P1 is not promised for both at once
	old     map[string]string
	log     []string
}

// churned is a replica with a bad network and a slow cache.
type churned struct {
	*replica

	of        *churn
	slotCache *slowSlotCache // or nil
	healed    atomic.Pointer[chan struct{}]
	trouble   atomic.Int32 // percent of requests with a fault
	stopped   time.Time
}

// slowSlotCache syncs late, and sometimes fails.
type slowSlotCache struct {
	*slotCache

	of *churn
}

func (k slowSlotCache) WaitForSync(ctx context.Context, slots ...uint8) error {
	if !k.of.calm.Load() {
		if err := pause(ctx, rand.N(3*time.Second)); err != nil {
			return err
		}
		if rand.N(10) == 0 {
			return errors.New("the cache has a bad day")
		}
	}
	return k.slotCache.WaitForSync(ctx, slots...)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// roundTrip is the bad network. It refuses and delays requests and loses answers. A request may
// reach the server after its sender has given up.
func (r *churned) roundTrip(server http.RoundTripper, h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		body, err := io.ReadAll(h.Body)
		if err != nil {
			return nil, err
		}
		if h.Method == http.MethodPut {
			r.judge(body)
		}
		h = h.Clone(h.Context())
		h.Body = io.NopCloser(bytes.NewReader(body))
	}
	if r.cut.Load() {
		if rand.N(2) == 0 {
			_ = pause(h.Context(), rand.N(20*time.Second))
		}
		return nil, errors.New("the network is cut")
	}
	if strings.Contains(h.URL.RawQuery, "watch=true") || strings.Contains(h.URL.RawQuery, "watch=1") {
		return r.watched(server, h)
	}
	if r.of.calm.Load() || rand.N(100) >= int(r.trouble.Load()) {
		return server.RoundTrip(h)
	}
	switch rand.N(5) {
	case 0:
		return nil, errors.New("the connection is reset")
	case 1:
		answer, err := server.RoundTrip(h)
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, errors.New("the answer is lost")
	case 2:
		return status(h, http.StatusInternalServerError), nil
	case 3:
		return status(h, http.StatusTooManyRequests), nil
	}
	return r.delayed(server, h)
}

func status(h *http.Request, code int) *http.Response {
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"by the test"}`, code)
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: h,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)),
	}
}

// delayed sends a request and its answer late. The request arrives also if its sender gives up.
func (r *churned) delayed(server http.RoundTripper, h *http.Request) (*http.Response, error) {
	type result struct {
		answer *http.Response
		err    error
	}
	done := make(chan result, 1)
	there, back := rand.N(8*time.Second), rand.N(4*time.Second)
	r.of.late.Go(func() {
		time.Sleep(there)
		answer, err := server.RoundTrip(h.Clone(context.WithoutCancel(h.Context())))
		time.Sleep(back)
		done <- result{answer, err}
	})
	select {
	case got := <-done:
		return got.answer, got.err
	case <-h.Context().Done():
		return nil, h.Context().Err()
	}
}

// watched makes a watch that stops while the network is cut, or ends.
func (r *churned) watched(server http.RoundTripper, h *http.Request) (*http.Response, error) {
	answer, err := server.RoundTrip(h)
	if err != nil {
		return nil, err
	}
	answer.Body = &slowBody{answer.Body, r, h.Context()}
	return answer, nil
}

type slowBody struct {
	io.ReadCloser

	of  *churned
	ctx context.Context //nolint:containedctx // of the request
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.of.cut.Load() {
		if rand.N(2) == 0 {
			return 0, errors.New("the watch is cut")
		}
		select {
		case <-*b.of.healed.Load():
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	if !b.of.of.calm.Load() && rand.N(100) < int(b.of.trouble.Load()) {
		if err := pause(b.ctx, rand.N(3*time.Second)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// badNetwork is the transport of a replica.
type badNetwork struct {
	http.RoundTripper

	of *churned
}

func (n badNetwork) RoundTrip(h *http.Request) (*http.Response, error) {
	return n.of.roundTrip(n.RoundTripper, h)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (n badNetwork) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// say records what happens, for the report of a failure.
func (c *churn) say(format string, args ...any) {
	c.log = append(c.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// begin starts a replica.
func (c *churn) begin() {
	c.t.Helper()
	name := "r" + strconv.Itoa(len(c.all))
	r := &churned{replica: &replica{t: c.t, name: name, done: make(chan error, 1)}, of: c}
	r.heal()
	r.trouble.Store(c.rand.Int32N(30))
	cfg := c.api.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return badNetwork{rt, r} })
	o := shard.Options{}
	if c.rand.IntN(2) == 0 {
		r.slotCache = &slowSlotCache{newSlotCache(), c}
		o.SlotCache = r.slotCache
	}
	o.Election = leaderelection.Options{Lease: "web", Namespace: "default", Identity: name}
	var err error
	r.Group, err = shard.New(cfg, o)
	testkit.NoError(c.t, err)
	ctx, stop := context.WithCancel(c.t.Context())
	r.stop = stop
	go func() {
		err := r.Run(ctx, r.lead)
		r.over.Store(true)
		r.done <- err
	}()
	c.all, c.running = append(c.all, r.replica), append(c.running, r)
	c.say("%s starts", name)
}

// lead does work in random slots.
func (r *churned) lead(take, work context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for pause(take, rand.N(time.Second)) == nil {
		all, _ := r.Owned()
		if len(all) == 0 {
			continue
		}
		a := all[rand.N(len(all))]
		if !a.Begin() {
			continue
		}
		running.Go(func() {
			defer a.End()
			long := rand.N(time.Second)
			if rand.N(50) == 0 {
				long = rand.N(20 * time.Second)
			}
			if pause(work, long) != nil {
				time.Sleep(rand.N(2 * time.Second)) // it is slow to stop, too
			}
		})
	}
	return nil
}

func (r *churned) heal() {
	ended := make(chan struct{})
	if before := r.healed.Swap(&ended); before != nil {
		close(*before)
	}
	r.cut.Store(false)
}

// judge checks that no two fences are open for a slot.
func (c *churn) judge() {
	c.t.Helper()
	open := map[uint8]*replica{}
	for _, r := range c.all {
		r.owns()
		r.mu.Lock()
		maps.DeleteFunc(r.known, func(a *owned.Slot, _ bool) bool {
			err := a.Term.Trusted()
			if other := open[a.Number]; err == nil && other != nil && other != r {
				c.t.Errorf("P1: the fences of %s and %s are open for slot %d at %s\n%s", other.name, r.name, a.Number, time.Now().Format("04:05.000"), strings.Join(c.log, "\n"))
			}
			if err == nil {
				open[a.Number] = r
			}
			return errors.Is(err, shard.ErrReleased)
		})
		r.mu.Unlock()
	}
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// pass lets time pass, and judges.
func (c *churn) pass(d time.Duration) {
	c.t.Helper()
	step := 50 * time.Millisecond
	if c.calm.Load() {
		step = time.Second
	}
	for until := time.Now().Add(d); time.Now().Before(until); {
		time.Sleep(step)
		synctest.Wait() // a hand-over at this moment is over
		c.judge()
		c.running = stdslices.DeleteFunc(c.running, func(r *churned) bool {
			if r.over.Load() {
				err := <-r.done
				c.say("%s has ended: %v", r.name, err)
				return true
			}
			if !r.stopped.IsZero() && time.Since(r.stopped) > time.Minute {
				c.t.Fatalf("%s was stopped a minute ago: %+v\n%s", r.name, *r.Status(), strings.Join(c.log, "\n"))
			}
			return false
		})
	}
}

// act does something at random.
func (c *churn) act() {
	if len(c.running) == 0 {
		c.begin()
		return
	}
	r := c.running[c.rand.IntN(len(c.running))]
	switch c.rand.IntN(16) {
	case 0, 1, 2, 3:
		if len(c.running) < 6 {
			c.begin()
		}
	case 4:
		c.end(r)
	case 5:
		c.say("%s crashes", r.name)
		r.cut.Store(true)
		c.end(r)
	case 6, 7, 8:
		c.say("%s is cut", r.name)
		r.cut.Store(true)
	case 9, 10:
		c.say("%s is healed", r.name)
		r.heal()
	case 11, 12:
		for _, r := range c.running {
			r.heal()
		}
		c.say("all are healed")
	case 13:
		c.pass(time.Minute)
	default:
		if c.edits {
			c.edit()
		} else {
			c.deleteMember()
		}
	}
}

func (c *churn) end(r *churned) {
	if r.stopped.IsZero() {
		c.say("%s stops", r.name)
		r.stopped = time.Now()
		r.stop()
	}
}

// edit changes the group's Lease by hand.
func (c *churn) edit() {
	leases := kubernetes.NewForConfigOrDie(c.api.Config()).CoordinationV1().Leases("default")
	edits := []string{
		`{"metadata":{"annotations":{"setpoint.dev/slots":null}}}`, `{"metadata":{"annotations":{"setpoint.dev/slots":"{}"}}}`,
		`{"metadata":{"managedFields":[{}],"annotations":{"by":"hand"}}}`, `{"spec":{"holderIdentity":"me"}}`,
		`{"spec":{"leaseDurationSeconds":1,"renewTime":null}}`,
	}
	which := c.rand.IntN(len(edits) + 2)
	c.say("edit %d of the group's Lease", which)
	var err error
	switch which {
	case len(edits):
		err = leases.Delete(c.t.Context(), "web", metav1.DeleteOptions{})
	case len(edits) + 1:
		var now *coordinationv1.Lease
		if now, err = leases.Get(c.t.Context(), "web", metav1.GetOptions{}); err == nil {
			before := c.old
			c.old = now.DeepCopy().Annotations
			if before != nil {
				now.Annotations = before
				_, err = leases.Update(c.t.Context(), now, metav1.UpdateOptions{FieldManager: "hand"})
			}
		}
	default:
		_, err = leases.Patch(c.t.Context(), "web", types.MergePatchType, []byte(edits[which]), metav1.PatchOptions{FieldManager: "hand"})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.t.Fatal(err)
	}
}

// deleteMember deletes the Lease of a member by hand.
func (c *churn) deleteMember() {
	leases := kubernetes.NewForConfigOrDie(c.api.Config()).CoordinationV1().Leases("default")
	all, err := leases.List(c.t.Context(), metav1.ListOptions{LabelSelector: shard.GroupLabel})
	testkit.NoError(c.t, err)
	if len(all.Items) > 0 {
		name := all.Items[c.rand.IntN(len(all.Items))].Name
		c.say("the Lease %s is deleted", name)
		if err := leases.Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
	}
}

// settle ends all faults, and checks that all becomes good.
func (c *churn) settle() {
	c.say("no more faults")
	c.calm.Store(true)
	for _, r := range c.running {
		r.heal()
	}
	for len(c.running) < 2 {
		c.begin()
	}
	c.pass(2 * time.Minute)
	living := stdslices.DeleteFunc(stdslices.Clone(c.running), func(r *churned) bool { return !r.stopped.IsZero() })
	if n := len(living); n > 0 && !even(n, 256)(c.fleet.judge()) {
		c.t.Errorf("%v of %d members\n%s\n%s", c.fleet.judge(), n, c.describe(), strings.Join(c.log, "\n"))
	}
	before := c.leaseVersions()
	c.pass(time.Minute)
	if n := c.leaseVersions() - before; n > 31*len(c.running)+3 {
		c.t.Errorf("%d writes of %d members in a minute\n%s", n, len(c.running), strings.Join(c.log, "\n"))
	}
	for _, r := range c.running {
		if u := r.Status().Unserved; len(u) > 0 {
			c.t.Errorf("%s reports %+v\n%s", r.name, u, strings.Join(c.log, "\n"))
		}
		if r.slotCache != nil && r.stopped.IsZero() && r.slotCache.keeps() != len(r.owns()) {
			c.t.Errorf("%s owns %d slots and keeps %d\n%s", r.name, len(r.owns()), r.slotCache.keeps(), strings.Join(c.log, "\n"))
		}
	}
}

// TestGroup_Churn: replicas start, stop, crash and lose their connections, requests and answers,
// and Leases are edited by hand. P1 and P5 always hold, and when the faults end, all slots are
// served. SETPOINT_FULL=1 makes it longer.
func TestGroup_Churn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes with the race detector")
	}
	seeds, long := 2, 40*time.Second
	if os.Getenv("SETPOINT_FULL") != "" {
		seeds, long = 40, 20*time.Minute
	}
	const first = uint64(1)
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(first+seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &churn{fleet: newFleet(t), rand: rand.New(rand.NewPCG(first+seed, 1)), edits: seed%2 == 0}
				defer c.late.Wait()
				defer c.fleet.end()
				defer func() {
					c.calm.Store(true)
					for _, r := range c.running {
						r.heal()
					}
				}()
				for range 3 {
					c.begin()
				}
				c.pass(20 * time.Second)
				for until := time.Now().Add(long); time.Now().Before(until); {
					c.pass(time.Duration(c.rand.Int64N(int64(8 * time.Second))))
					c.act()
				}
				c.settle()
			})
		})
	}
}
