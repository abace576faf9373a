// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// FuzzC6_Churn: Reconciles write, fail, panic, exit, hang and are interrupted. Answers get lost,
// watches lag and break, a CRD comes and goes, terms end, and users pause, requeue and change the
// workers. No Reconcile starts on a cache without its key's writes (C6), or beside another one of
// its key (C1). At the end each key was reconciled after its last change, and nothing is left of
// any.
func FuzzC6_Churn(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newControlChurn(t, seed).run() })
	})
}

// controlChurn is a controller of Deployments that writes Secrets and the Deployments' status.
type controlChurn struct {
	t       *testing.T
	random  *rand.Rand // of the test's goroutine
	api     *sim.Server
	client  *client.Client
	owners  *cache.Handle[*appsv1.Deployment]
	secrets *cache.Handle[*corev1.Secret]
	ours    *cache.Handle[*corev1.Secret] // by label
	extra   source.Source[types.NamespacedName]
	control *controller.Controller[types.NamespacedName]
	term    context.CancelCauseFunc // ends the term
	served  bool                    // Secrets are served

	mu      sync.Mutex // guards what follows
	calm    bool
	nasty   bool // answers get lost
	busy    map[types.NamespacedName]bool
	wrote   map[types.NamespacedName]map[string]*expected // by the last Reconcile of a key
	seen    map[types.NamespacedName]string               // version that the last Reconcile saw
	started int
	checked int
}

// expected describes a Secret that was written.
type expected struct {
	uid     types.UID
	version string
	gone    bool
	ours    bool
}

func newControlChurn(t *testing.T, seed uint64) *controlChurn {
	c := &controlChurn{
		t: t, random: rand.New(rand.NewPCG(seed, 6)), served: true, busy: map[types.NamespacedName]bool{},
		wrote: map[types.NamespacedName]map[string]*expected{}, seen: map[types.NamespacedName]string{},
	}
	var all *cache.Cache
	c.api, all = cluster(t, sim.Deployments, sim.Secrets)
	cfg := c.api.Config()
	cfg.Transport = c
	var err error
	c.client, err = client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	c.owners, c.secrets = cache.For[*appsv1.Deployment](all), cache.For[*corev1.Secret](all)
	c.ours = cache.ForScope[*corev1.Secret](all, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"ours": "yes"})})
	o := controller.Options{Workers: 1 + c.random.IntN(4), Logger: slog.New(slog.DiscardHandler), MaxInterrupts: c.random.IntN(3)}
	if c.random.IntN(2) == 0 {
		o.Deadline = time.Second
	}
	c.control = controller.NewWithQueue("churn", controller.Func[types.NamespacedName](c.reconcile), o,
		workqueue.Options[types.NamespacedName]{Backoff: workqueue.Exponential{Base: 100 * time.Millisecond, Max: 10 * time.Second}})
	c.control.Watch(source.Kind(c.owners, handler.Self()))
	c.control.Reads(c.secrets, c.ours)
	return c
}

// RoundTrip loses the answers to some completed writes, or their bodies, or hangs.
func (c *controlChurn) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	nasty := c.nasty && r.Method != http.MethodGet
	c.mu.Unlock()
	kind := rand.IntN(8)
	if nasty && kind == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp, err := c.api.RoundTrip(r)
	if err != nil || !nasty {
		return resp, err
	}
	switch kind {
	case 1:
		resp.Body.Close()
		return nil, errors.New("the connection was reset")
	case 2:
		resp.Body = &cutBody{resp.Body}
	}
	return resp, nil
}

// cutBody ends in the middle.
type cutBody struct{ body interface{ Close() error } }

func (c *cutBody) Read([]byte) (int, error) { return 0, errors.New("unexpected end") }
func (c *cutBody) Close() error             { return c.body.Close() }

func (c *controlChurn) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	c.begin(ctx, key)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy[key] = false
	}()
	c.mu.Lock()
	calm := c.calm
	c.mu.Unlock()
	if calm {
		return controller.Result{}, nil
	}
	for range rand.IntN(4) {
		c.write(ctx, key, fmt.Sprint(key.Name, "-", rand.IntN(2)))
		if rand.IntN(3) == 0 {
			sleepIn(ctx, time.Duration(rand.IntN(2000))*time.Millisecond)
		}
	}
	if o, err := c.owners.Get(ctx, key); err == nil && rand.IntN(3) == 0 {
		o.Status.ObservedGeneration = int64(rand.IntN(100))
		_, _ = client.For[*appsv1.Deployment](c.client).UpdateStatus(ctx, o) // may fail
	}
	switch rand.IntN(12) {
	case 0:
		panic("nasty")
	case 1:
		runtime.Goexit()
	case 2:
		return controller.Result{}, controller.Terminal(errFlaky)
	case 3:
		return controller.Result{}, controller.RetryAfter(errFlaky, time.Second)
	case 4:
		return controller.Result{RequeueAfter: time.Duration(rand.IntN(3000)) * time.Millisecond}, nil
	case 5, 6:
		return controller.Result{}, errFlaky
	}
	return controller.Result{}, context.Cause(ctx)
}

func sleepIn(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// begin checks that the writes of the key's last Reconcile are visible.
func (c *controlChurn) begin(ctx context.Context, key types.NamespacedName) {
	c.mu.Lock()
	testkit.Equal(c.t, c.busy[key], false, fmt.Sprintf("two Reconciles of %s at once", key))
	c.busy[key] = true
	c.started++
	wrote := c.wrote[key]
	delete(c.wrote, key)
	c.mu.Unlock()
	stale := controller.Stale(ctx)
	if stale == nil {
		for name, want := range wrote {
			c.check(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, want)
		}
	}
	version := ""
	if o, err := c.owners.Get(ctx, key); err == nil {
		version = o.ResourceVersion
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[key] = version
}

func (c *controlChurn) check(ctx context.Context, key types.NamespacedName, want *expected) {
	for _, h := range []*cache.Handle[*corev1.Secret]{c.secrets, c.ours} {
		got, err := h.Get(ctx, key)
		if err != nil && !apierrors.IsNotFound(err) {
			continue // the context has ended
		}
		there, now := err == nil, c.api.Object(sim.Secrets, key.Namespace, key.Name)
		same := now != nil && now.GetUID() == want.uid && (h == c.secrets || want.ours && now.GetResourceVersion() == want.version)
		switch {
		case want.gone && there && got.UID == want.uid:
			c.t.Errorf("%s shows %s, which was deleted", h, key)
		case !want.gone && there && older(got.ResourceVersion, want.version):
			c.t.Errorf("%s shows %s at version %s, %s was written", h, key, got.ResourceVersion, want.version)
		case !want.gone && !there && same:
			c.t.Errorf("%s does not show %s, which was written at %s", h, key, want.version)
		}
		c.mu.Lock()
		c.checked++
		c.mu.Unlock()
	}
}

func older(a, b string) bool {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x < y
}

// write creates, changes or deletes a Secret, and records what is expected of it.
func (c *controlChurn) write(ctx context.Context, key types.NamespacedName, name string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	secrets, at := client.For[*corev1.Secret](c.client), types.NamespacedName{Namespace: key.Namespace, Name: name}
	s := &corev1.Secret{ObjectMeta: named(name)}
	if rand.IntN(2) == 0 {
		s.Labels = map[string]string{"ours": "yes"}
	}
	s.Data = map[string][]byte{"x": {byte(rand.IntN(3))}}
	old, err := secrets.GetLive(ctx, at)
	switch {
	case apierrors.IsNotFound(err):
		s, err = secrets.Create(ctx, s)
		c.note(key, s, err, false)
	case err != nil:
	case rand.IntN(4) == 0:
		c.note(key, old, secrets.Delete(ctx, at, client.Preconditions(old.UID, "")), true)
	case rand.IntN(3) == 0:
		s, err = secrets.Patch(ctx, at, types.MergePatchType, []byte(`{"metadata":{"labels":{"ours":"yes"}}}`))
		c.note(key, s, err, false)
	default:
		s.ResourceVersion = old.ResourceVersion
		s, err = secrets.Update(ctx, s)
		c.note(key, s, err, false)
	}
}

func (c *controlChurn) note(key types.NamespacedName, s *corev1.Secret, err error, gone bool) {
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrote[key] == nil {
		c.wrote[key] = map[string]*expected{}
	}
	c.wrote[key][s.Name] = &expected{s.UID, s.ResourceVersion, gone, s.Labels["ours"] == "yes"}
}

func (c *controlChurn) run() {
	ctx, cancel := context.WithCancel(context.Background())
	synctest.Wait()
	var running sync.WaitGroup
	running.Go(func() { ok(c.t, c.control.Warm(ctx)) })
	running.Go(func() { c.lead(ctx) })
	synctest.Wait()
	for range 500 {
		c.step()
	}
	c.quiet()
	cancel()
	running.Wait()
}

// lead leads one term after another.
func (c *controlChurn) lead(ctx context.Context) {
	for ctx.Err() == nil {
		work, lose := context.WithCancelCause(context.Background())
		take, stop := context.WithCancel(ctx)
		c.mu.Lock()
		c.term = func(cause error) {
			stop()
			if cause != nil {
				lose(cause)
			}
		}
		c.mu.Unlock()
		ok(c.t, c.control.Lead(take, work))
		stop()
		lose(nil)
	}
}

func (c *controlChurn) step() {
	r := c.random
	name := fmt.Sprint("d", r.IntN(5))
	key := types.NamespacedName{Namespace: "default", Name: name}
	switch k := r.IntN(34); {
	case k < 8:
		d := &appsv1.Deployment{ObjectMeta: named(name)}
		d.Spec.Replicas = new(int32(r.IntN(100)))
		d.Annotations = map[string]string{}
		switch r.IntN(6) {
		case 0:
			d.Annotations[controller.PausedAnnotation] = "true"
		case 1:
			d.Annotations[controller.RequeueAnnotation] = fmt.Sprint(r.IntN(100))
		}
		c.api.Put(sim.Deployments, d)
	case k < 10:
		c.api.Remove(sim.Deployments, "default", name)
	case k < 12 && c.served:
		c.api.Remove(sim.Secrets, "default", fmt.Sprint(name, "-", r.IntN(2)))
	case k < 15:
		c.disturb(k)
	case k == 15:
		c.api.Lag(time.Duration(r.IntN(3000)) * time.Millisecond)
	case k == 16:
		c.control.PauseKey(key)
	case k == 17:
		c.control.ResumeKey(key)
	case k == 18:
		c.control.Requeue(key)
	case k == 20 && r.IntN(3) == 0:
		c.control.Pause()
	case k == 21:
		c.control.Resume()
	case k == 22:
		c.mu.Lock()
		c.nasty = !c.nasty
		c.mu.Unlock()
	case k == 23:
		c.watchMore()
	case k == 24:
		c.endTerm()
	case k == 25:
		time.Sleep(time.Duration(r.IntN(100)) * time.Second)
	default:
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
}

// disturb breaks watches.
func (c *controlChurn) disturb(k int) {
	switch {
	case k == 12:
		c.api.CutWatches()
	case k == 13:
		c.api.Expire()
		c.api.CutWatches()
	case c.random.IntN(4) > 0 && c.served:
	case c.served:
		c.api.Withdraw(sim.Secrets)
		c.served = false
	default:
		c.api.Serve(sim.Secrets)
		c.served = true
	}
}

// watchMore adds or removes another source.
func (c *controlChurn) watchMore() {
	if c.extra != nil {
		ok(c.t, c.control.Unwatch(context.Background(), c.extra))
		c.extra = nil
		return
	}
	c.extra = source.Kind(c.secrets, handler.Func[types.NamespacedName](func(_ context.Context, e handler.Event) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: "default", Name: e.Key().Name[:2]}}, nil
	}))
	c.control.Watch(c.extra)
}

func (c *controlChurn) endTerm() {
	c.mu.Lock()
	end := c.term
	c.mu.Unlock()
	if c.random.IntN(2) == 0 {
		end(nil)
	} else {
		end(errors.New("the term is lost"))
	}
}

// quiet ends all trouble, waits, and checks what is left.
func (c *controlChurn) quiet() {
	c.mu.Lock()
	c.calm, c.nasty = true, false
	c.mu.Unlock()
	if !c.served {
		c.api.Serve(sim.Secrets)
	}
	c.api.Lag(0)
	c.control.Resume()
	for i := range 5 {
		name := fmt.Sprint("d", i)
		c.control.ResumeKey(types.NamespacedName{Namespace: "default", Name: name})
		if o := c.api.Object(sim.Deployments, "default", name); o != nil && o.GetAnnotations()[controller.PausedAnnotation] != "" {
			c.api.Put(sim.Deployments, &appsv1.Deployment{ObjectMeta: named(name)})
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	c.mu.Lock()
	for i := range 5 {
		key := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("d", i)}
		version := ""
		if o := c.api.Object(sim.Deployments, key.Namespace, key.Name); o != nil {
			version = o.GetResourceVersion()
		}
		testkit.Equal(c.t, c.seen[key], version, fmt.Sprintf("the version that the last Reconcile of %s has seen", key))
	}
	if c.started < 20 || c.checked < 10 {
		c.t.Errorf("%d Reconciles, %d checks", c.started, c.checked)
	}
	c.t.Logf("%d Reconciles, %d checks", c.started, c.checked)
	c.mu.Unlock()
	for i := range 5 { // keys that wrote and were never due again
		c.control.Requeue(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("d", i)})
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	s := c.control.Snapshot()
	if len(s.Keys)+len(s.Running)+len(s.Queue.Keys) > 0 || c.control.Remembered()+c.control.Counted() > 0 {
		c.t.Errorf("left behind: %+v; %d pasts, %d counts", s, c.control.Remembered(), c.control.Counted())
	}
}
