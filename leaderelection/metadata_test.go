// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// described sets a label, and annotations that depend on the term.
func described(o *leaderelection.Options) {
	o.Labels = map[string]string{"group": "web"}
	o.Annotator = termAndTime{}
}

type termAndTime struct{}

func (termAndTime) Annotations(of term.Token) map[string]string {
	return map[string]string{"term": of.ResourceVersion, "at": time.Now().Format(time.RFC3339Nano)}
}

// TestMetadata: the Lease has the labels and annotations of the options. Annotations that depend on
// the term follow at once. Other metadata stays, also on a release.
func TestMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		put(api, coordinationv1.LeaseSpec{})
		change(t, api, func(l *coordinationv1.Lease) {
			l.Labels, l.Annotations = map[string]string{"other": "1", "group": "x"}, map[string]string{"other": "2"}
		})
		want := func(when string, annotations map[string]string) {
			t.Helper()
			l := lease(t, api)
			testkit.DeepEqual(t, l.Labels, map[string]string{"other": "1", "group": "web"}, when)
			testkit.DeepEqual(t, l.Annotations, annotations, when)
		}
		began := time.Now()
		at := func(d time.Duration) string { return began.Add(d).Format(time.RFC3339Nano) }
		acquired, answered := "", false
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "update") && !answered {
				answered = true
				resp, err := r.Forward(api)
				acquired = lease(t, api).ResourceVersion
				want("acquired", map[string]string{"other": "2", "term": "", "at": at(0)})
				return resp, err
			}
			return nil, nil
		})
		a := newReplica(t, api, "a", described)
		stop, result := a.start(t, untilStopped)
		synctest.Wait()
		want("at the start", map[string]string{"other": "2", "term": acquired, "at": at(0)})
		testkit.Equal(t, a.made(), "GET PUT PUT", "the start takes")
		testkit.Pass(5 * time.Second)
		want("renewed", map[string]string{"other": "2", "term": acquired, "at": at(4 * time.Second)})
		testkit.Equal(t, a.made(), "PUT PUT", "5 s take")
		stop()
		ok(t, result())
		want("released", map[string]string{"other": "2", "term": acquired, "at": at(4 * time.Second)})
	})
}

// TestL5_MetadataThatOthersWriteCostsNoTerm: between all renewals, another client changes labels
// and annotations. It removes ours, too. The Lease stays ours, and the next renewal restores them.
func TestL5_MetadataThatOthersWriteCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a", described)
		stop, result := a.start(t, untilStopped)
		for range 30 {
			testkit.Pass(2 * time.Second)
			if l := lease(t, api); l.Labels["group"] != "web" || l.Annotations["term"] == "" || l.Annotations["at"] == "" {
				t.Errorf("the Lease has the labels %v and the annotations %v", l.Labels, l.Annotations)
			}
			change(t, api, func(l *coordinationv1.Lease) {
				l.Labels, l.Annotations = map[string]string{"group": "edited"}, map[string]string{"other": time.Now().String()}
			})
		}
		a.want(t, "acquired operator")
		testkit.Pass(2 * time.Second)
		testkit.NotEqual(t, lease(t, api).Annotations["other"], "", "of another writer")
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "released operator: false")
	})
}
