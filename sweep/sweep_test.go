// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/sweep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// copier keeps a Secret with the data of each ConfigMap, and then annotates the ConfigMap as
// copied.
type copier struct {
	defect  string // what it does wrong
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
	client  *client.Client
}

const copied = "example.com/copied"

func (r *copier) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	from, err := r.maps.Get(ctx, key)
	if r.defect == "does not see its writes" {
		<-time.After(time.Second) // without faults, the caches are current by then
		if from, err = r.maps.Get(ctx, key); err != nil {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
	}
	switch {
	case err == nil && r.defect == "fails for ever", apierrors.IsNotFound(err) && r.defect == "fails for ever":
		return controller.Result{}, errors.New("it fails")
	case err == nil && r.defect == "fails at first" && from.Data["a"] == "1":
		return controller.Result{}, errors.New("it fails at first")
	case err != nil || from.DeletionTimestamp != nil || r.defect == "writes nothing":
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if r.defect == "status first" {
		if err := r.annotate(ctx, from); err != nil {
			return controller.Result{}, err
		}
	}
	made, err := r.copy(ctx, from)
	switch {
	case err != nil && r.defect == "forgets errors":
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	case (r.defect == "annotates what it has just made" || r.defect == "fails at first") && !made:
		return controller.Result{}, nil
	}
	return controller.Result{}, r.annotate(ctx, from)
}

// copy creates or updates the Secret.
func (r *copier) copy(ctx context.Context, from *corev1.ConfigMap) (made bool, err error) {
	s := &corev1.Secret{Data: map[string][]byte{"a": []byte(from.Data["a"])}}
	s.Namespace, s.Name = from.Namespace, from.Name
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(from, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	writes := client.For[*corev1.Secret](r.client)
	if r.defect == "creates once more" && from.Annotations[copied] != from.Data["a"] {
		s.Name, s.GenerateName = "", from.Name+"-"
		_, err := writes.Create(ctx, s)
		return true, err
	}
	now, err := r.secrets.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	switch {
	case apierrors.IsNotFound(err):
		_, err = writes.Create(ctx, s)
		return true, err
	case err != nil || string(now.Data["a"]) == from.Data["a"]:
		return false, err
	}
	s.ResourceVersion = now.ResourceVersion
	_, err = writes.Update(ctx, s)
	return true, err
}

func (r *copier) annotate(ctx context.Context, from *corev1.ConfigMap) error {
	value := from.Data["a"]
	if r.defect == "never stops" {
		value = from.ResourceVersion
	}
	if from.Annotations[copied] == value {
		return nil
	}
	patch := []byte(`{"metadata":{"annotations":{"` + copied + `":"` + value + `","example.com/saw":"` + from.ResourceVersion + `"}}}`)
	_, err := client.For[*corev1.ConfigMap](r.client).Patch(ctx, types.NamespacedName{Namespace: from.Namespace, Name: from.Name}, types.MergePatchType, patch)
	return err
}

// deaf does not end with its context.
type deaf struct{ sweep.Operator }

func (d deaf) Run(ctx context.Context) error {
	err := d.Operator.Run(ctx)
	<-make(chan struct{})
	return err
}

// heedless also writes without its Lease.
type heedless struct {
	sweep.Operator
	client *client.Client
}

func (h heedless) Run(ctx context.Context) error {
	defer h.client.Close()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
				_, _ = client.For[*corev1.ConfigMap](h.client).Patch(ctx, a, types.MergePatchType, []byte(`{"data":{"b":"late"}}`))
			}
		}
	})
	return h.Operator.Run(ctx)
}

// opponent does not want what the copier annotates.
func opponent(p sweep.Process) (sweep.Program, error) {
	mgr := manager.New(p.Config, manager.Options{Name: "opponent", Logger: p.Logger})
	maps := cache.For[*corev1.ConfigMap](mgr.Cache())
	c := controller.New("opponent", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		m, err := maps.Get(ctx, key)
		if err != nil || m.Annotations[copied] == "no" {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		_, err = client.For[*corev1.ConfigMap](mgr.Client()).Patch(ctx, key, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+copied+`":"no"}}}`))
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(maps, handler.Self()))
	mgr.Add(c)
	return mgr, nil
}

func copies(defect string) func(p sweep.Process) (sweep.Operator, error) {
	return func(p sweep.Process) (sweep.Operator, error) {
		mgr := manager.New(p.Config, manager.Options{
			Name: "copier", Logger: p.Logger, LeaderElection: &leaderelection.Options{Namespace: "default", Lease: "copier"},
		})
		o := controller.Options{}
		if defect == "does not see its writes" {
			o.ReadYourWrites = -1
		}
		r := &copier{defect, cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache()), mgr.Client()}
		c := controller.New("copier", r, o)
		c.Watch(source.Kind(r.maps, handler.Self()))
		c.Watch(source.Kind(r.secrets, handler.Owner(r.maps)))
		mgr.Add(c)
		switch defect {
		case "does not end":
			return deaf{mgr}, nil
		case "ignores its Lease":
			own, err := client.New(p.Config, client.Options{})
			return heedless{mgr, own}, err
		}
		return mgr, nil
	}
}

var a = types.NamespacedName{Namespace: "default", Name: "a"}

func scenario(defect string) sweep.Scenario {
	maps := client.For[*corev1.ConfigMap]
	return sweep.Scenario{
		Scheme:   scheme.Scheme,
		Operator: copies(defect),
		Steps: []sweep.Step{
			{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
				_, err := maps(c).Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}, Data: map[string]string{"a": "1"},
				})
				return err
			}},
			{Name: "change", Do: func(ctx context.Context, c *client.Client) error {
				_, err := maps(c).Patch(ctx, a, types.MergePatchType, []byte(`{"data":{"a":"2"}}`))
				return err
			}},
			{Name: "first of its kind", Do: func(ctx context.Context, c *client.Client) error {
				_, err := client.For[*corev1.ServiceAccount](c).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}})
				return err
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return maps(c).Delete(ctx, a) }},
		},
		Invariants: []sweep.Invariant{{Name: "a copied ConfigMap has a Secret", Holds: func(s *sweep.State) error {
			for _, m := range sweep.List[*corev1.ConfigMap](s) {
				if m.Annotations[copied] != "" && len(sweep.List[*corev1.Secret](s)) == 0 {
					return errors.New("there is none")
				}
			}
			return nil
		}}},
	}
}

func TestRun(t *testing.T) { sweep.Run(t, scenario("")) }

// TestRun_AStepThatWaits: the operator comes back for it.
func TestRun_AStepThatWaits(t *testing.T) {
	s := scenario("")
	create := s.Steps[0].Do
	s.Steps[0].Do = func(ctx context.Context, c *client.Client) error {
		if err := create(ctx, c); err != nil {
			return err
		}
		for {
			m, err := client.For[*corev1.ConfigMap](c).GetLive(ctx, a)
			if err != nil || m.Annotations[copied] == "1" {
				return err
			}
			<-time.After(time.Second)
		}
	}
	sweep.Run(t, s)
}

// TestDefects runs TestDefect in processes of their own, in which it fails.
func TestDefects(t *testing.T) {
	for defect, want := range map[string]string{
		"annotates what it has just made": `crash after: create secrets in default #1`,
		"creates once more":               `Secret default/a-* is created 3 times, and 2 without faults`,
		"status first":                    `the invariant "a copied ConfigMap has a Secret" is broken`,
		"forgets errors":                  `failure: create secrets in default #1`,
		"never stops":                     `without faults: after step create, the operator has not converged`,
		"does not see its writes":         `operator 1 did not see its own write: update secrets default/a #1 was answered, and `,
		"ignores its Lease":               `, and its Lease expired `,
		"fights":                          `two programs change ConfigMap default/a.metadata.annotations.example.com/copied to and fro: `,
		"fails for ever":                  `without faults: after the last step, the operator is not idle: `,
		"fails at first":                  `also without faults, after step create, the operator is not idle: `,
		"writes nothing":                  `without faults: the operator has written nothing; let it use Process.Config`,
		"panics":                          `without faults: step create: it panicked: oops`,
		"ends the test":                   `without faults: step create: it has ended its goroutine: let it return an error`,
		"an invariant panics":             `the invariant "a copied ConfigMap has a Secret" is broken by`,
		"one name":                        `two Scenario.Steps have the name "create"`,
		"no operator":                     `Scenario.Operator returned no operator and no error`,
		"does not end":                    `operator 1 has not returned from Run 1m0s after the end of its context; let Run end with its context`,
		"no write":                        `conflict: update pods default/x #1: there is no such write; the operator's writes were:`,
		"no view":                         `view pods: there is no such view; the operator's views were:`,
		"no fault":                        `Plan.Fault "earthquake" is unknown; use a constant of package sweep, but not None`,
		"no steps":                        `Scenario.Steps is empty; add what a user does`,
		"fails":                           `without faults: step create: configmaps "a" already exists`,
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDefect$") //nolint:gosec // itself
			cmd.Env = append(os.Environ(), "SWEEP_DEFECT="+defect)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%v; the output lacks %q:\n%s", err, want, out)
			}
		})
	}
}

func TestDefect(t *testing.T) {
	defect := os.Getenv("SWEEP_DEFECT")
	s := scenario(defect)
	switch defect {
	case "":
		t.Skip("it is run by TestDefects")
	case "no write":
		sweep.Replay(t, s, sweep.Plan{Fault: sweep.Conflict, Write: "update pods default/x", Nth: 1})
	case "no view":
		sweep.Replay(t, s, sweep.Plan{Fault: sweep.LateThenStep, Write: "create secrets in default", Nth: 1, View: "pods"})
		return
	case "no fault":
		sweep.Replay(t, s, sweep.Plan{Fault: "earthquake"})
		return
	case "no steps":
		s.Steps = nil
	case "fights":
		s.Beside = append(s.Beside, opponent)
	case "panics":
		s.Steps[0].Do = func(context.Context, *client.Client) error { panic("oops") }
	case "ends the test":
		s.Steps[0].Do = func(context.Context, *client.Client) error { t.Fatal("no"); return nil }
	case "an invariant panics":
		s.Invariants[0].Holds = func(*sweep.State) error { panic("oops") }
	case "one name":
		s.Steps[1].Name = s.Steps[0].Name
	case "no operator":
		s.Operator = func(sweep.Process) (sweep.Operator, error) { return nil, nil }
	case "fails":
		m := &corev1.ConfigMap{}
		m.Namespace, m.Name = a.Namespace, a.Name
		s.Objects = append(s.Objects, m)
	}
	sweep.Run(t, s)
}
