// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

func TestOptions(t *testing.T) {
	named := leaderelection.Options{Lease: "operator", Namespace: "default"}
	with := func(change func(*leaderelection.Options)) leaderelection.Options {
		o := named
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		o    leaderelection.Options
		want []string // nothing: valid
	}{
		"defaults": {o: named},
		"short":    {o: with(func(o *leaderelection.Options) { o.LeaseDuration = time.Second })},
		"kubernetes": {o: with(func(o *leaderelection.Options) {
			o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 15*time.Second, 10*time.Second, 2*time.Second
		})},
		"openshift": {o: with(func(o *leaderelection.Options) {
			o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 137*time.Second, 107*time.Second, 26*time.Second
		})},
		"nothing":       {want: []string{"Options.Lease: name the Lease", "Options.Namespace: this is not a pod"}},
		"fraction":      {o: with(func(o *leaderelection.Options) { o.LeaseDuration = 1500 * time.Millisecond }), want: []string{"Options.LeaseDuration: 1.5s"}},
		"too short":     {o: with(func(o *leaderelection.Options) { o.LeaseDuration = 100 * time.Millisecond }), want: []string{"Options.LeaseDuration: 100ms"}},
		"negative":      {o: with(func(o *leaderelection.Options) { o.LeaseDuration = -time.Second }), want: []string{"Options.LeaseDuration: -1s"}},
		"too long":      {o: with(func(o *leaderelection.Options) { o.LeaseDuration = 1 << 31 * time.Second }), want: []string{"Options.LeaseDuration: 596523h14m8s, must be at most 2147483647 s"}},
		"renew":         {o: with(func(o *leaderelection.Options) { o.RenewDeadline = 13 * time.Second }), want: []string{"Options.RenewDeadline: 13s"}},
		"renew < 0":     {o: with(func(o *leaderelection.Options) { o.RenewDeadline = -time.Second }), want: []string{"Options.RenewDeadline: -1s"}},
		"renew > lease": {o: with(func(o *leaderelection.Options) { o.RenewDeadline = 15 * time.Second }), want: []string{"Options.RenewDeadline: 15s, must be positive and shorter than LeaseDuration (15s)"}},
		"retry":         {o: with(func(o *leaderelection.Options) { o.RetryPeriod = 8 * time.Second }), want: []string{"Options.RetryPeriod: 8s, must be positive and, with a quarter on top, shorter than RenewDeadline (10s)"}},
		"both":          {o: with(func(o *leaderelection.Options) { o.RetryPeriod = 6 * time.Second }), want: []string{"Options.RenewDeadline: 10s, must be, with RetryPeriod (6s) on top, shorter than LeaseDuration (15s)"}},
		"stuckAfter":    {o: with(func(o *leaderelection.Options) { o.StuckAfter = -time.Second }), want: []string{"Options.StuckAfter: -1s, must not be negative"}},
		"name":          {o: with(func(o *leaderelection.Options) { o.Lease = "Web_Site" }), want: []string{`Options.Lease: "Web_Site" is not a valid name; use`}},
		"dots":          {o: with(func(o *leaderelection.Options) { o.Lease = "operator.example.com" })},
		"namespace":     {o: with(func(o *leaderelection.Options) { o.Namespace = "a.b" }), want: []string{`Options.Namespace: "a.b" is not a valid name; use`}},
		"blank":         {o: with(func(o *leaderelection.Options) { o.Identity = " \t" }), want: []string{`Options.Identity: " \t"; use printable text`}},
		"newline":       {o: with(func(o *leaderelection.Options) { o.Identity = "a\nb" }), want: []string{`Options.Identity: "a\nb"; use printable text`}},
		"long":          {o: with(func(o *leaderelection.Options) { o.Identity = strings.Repeat("pod-", 200) }), want: []string{`Options.Identity: 800 bytes that begin with "pod-pod-pod-pod-pod-"; use at most 512`}},
		"labels": {o: with(func(o *leaderelection.Options) {
			o.Labels = map[string]string{"example.com/group": "web", "b c": "x", "a": "not a value"}
		}), want: []string{"Options.Labels: a=not a value: a valid label", "Options.Labels: b c=x: name part"}},
		"retry < 0": {o: with(func(o *leaderelection.Options) { o.RetryPeriod = -time.Second }), want: []string{"Options.RetryPeriod: -1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.o.Validate()
			if e, made := leaderelection.New(&rest.Config{}, test.o); (e == nil) == (made == nil) || (err == nil) != (made == nil) {
				t.Errorf("New returned %v and %v, Validate %v", e, made, err)
			}
			if len(test.want) == 0 {
				ok(t, err)
				return
			}
			if err == nil {
				t.Fatal("it is valid")
			}
			lines := strings.Split(err.Error(), "\n")
			testkit.Len(t, lines, len(test.want))
			for _, want := range test.want {
				testkit.ErrorContains(t, err, "leaderelection."+want)
			}
		})
	}
}

func TestNewNeedsAUsableConfig(t *testing.T) {
	o := leaderelection.Options{Lease: "operator", Namespace: "default"}
	for name, cfg := range map[string]*rest.Config{
		"nil":     nil,
		"no file": {Host: "https://example.test", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}},
	} {
		testkit.ErrorContains(t, testkit.Err(leaderelection.New(cfg, o)), "leaderelection.New: ", name, "New returned")
	}
}

func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		holders := map[string]bool{}
		for range 2 {
			e := newReplica(t, api, "")
			stop, result := e.start(t, untilStopped)
			testkit.Pass(20 * time.Second)
			holders[holder(t, api)] = true
			testkit.Equal(t, *lease(t, api).Spec.LeaseDurationSeconds, 15, "the Lease's duration")
			stop()
			ok(t, result())
		}
		testkit.Len(t, holders, 2)
		testkit.Equal(t, holders[""], false)
		testkit.AtMost(t, api.Count("update", sim.Leases), 30)
	})
}
