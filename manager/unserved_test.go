// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
)

func leaseHeldBy(holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}
}

func wantLine(t *testing.T, c *http.Client, line string) {
	t.Helper()
	if status, body := get(t, c, "http://x/readyz?verbose"); status != http.StatusOK || !strings.Contains(body, line+"\n") {
		t.Errorf("%d\n%s\nwant %s", status, body, line)
	}
}

// TestP2_OneReplicaRecordsUnservedSlots as one event, and another one when all are served. No
// replica becomes unready.
func TestP2_OneReplicaRecordsUnservedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Leases, eventsResource)
		api.Put(sim.Leases, leaseHeldBy("old", 3600))
		var stops []func()
		var results []func() error
		var probes []*http.Client
		for range 3 {
			m, c := healthy(t, api, sharded)
			m.Add(newFake("website", &diary{}))
			stop, result := start(t, m)
			stops, results, probes = append(stops, stop), append(results, result), append(probes, c)
		}
		testkit.Pass(50 * time.Second)
		testkit.Equal(t, len(eventsOf(t, api)), 0, "events before a minute")
		testkit.Pass(5 * time.Minute)
		all := eventsOf(t, api)
		if len(all) != 1 || all[0].Type != "Warning" || all[0].Reason != "SlotsUnserved" || all[0].Regarding.Kind != "Lease" ||
			all[0].Regarding.Name != "operator" || all[0].Regarding.UID == "" ||
			!strings.HasPrefix(all[0].Note, "256 slots (0-255) are not served for 1m") || !strings.HasSuffix(all[0].Note, "old holds the group's Lease; the group waits until it is released") {
			t.Fatalf("the events are %+v", all)
		}
		for _, c := range probes {
			wantLine(t, c, "[+]shards-operator ok: 256 slots (0-255) are not served for 5m50s: old holds the group's Lease; the group waits until it is released")
		}
		api.Put(sim.Leases, leaseHeldBy("", 1))
		testkit.Pass(time.Minute)
		all = eventsOf(t, api)
		if len(all) != 2 || all[0].Reason == all[1].Reason {
			t.Fatalf("the events are %+v", all)
		}
		for _, c := range probes {
			wantLine(t, c, "[+]shards-operator ok")
		}
		for i := range stops {
			stops[i]()
			ok(t, results[i]())
		}
	})
}

// TestShards_NotReadyWithoutTheGroup: a replica that may use its Lease, but may not list the
// group's, must stop a rollout.
func TestShards_NotReadyWithoutTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		var forbidden atomic.Bool
		forbidden.Store(true)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if forbidden.Load() && (r.Verb == "list" || r.Verb == "watch") && r.Resource.Resource == "leases" {
				return r.Fail(http.StatusForbidden, "no right")
			}
			return nil, nil
		})
		m, c := healthy(t, api, sharded)
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		testkit.Pass(4 * time.Second)
		want(t, c, "http://x/readyz/shards-operator", 500, "[-]shards-operator failed: the group's Lease could not be read yet; let the replica list and watch Leases in its namespace")
		forbidden.Store(false)
		testkit.Pass(10 * time.Second)
		want(t, c, "http://x/readyz/shards-operator", 200, "ok")
		stop()
		ok(t, result())
	})
}

// TestShards_HooksOfTheManager get what a group reports, beside the options' hooks.
func TestShards_HooksOfTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		adopted := 0
		count := func() *hook.Hook {
			return hook.On(func(s *hook.ShardSlots) {
				if s.Change == hook.ShardsAcquired {
					adopted += s.Slots
				}
			})
		}
		m := newManager(newAPI(), func(o *manager.Options) {
			sharded(o)
			o.Hook, o.LeaderElection.(*shard.Options).Hook = count(), count() //nolint:forcetypeassert // see sharded
		})
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		testkit.Pass(5 * time.Second)
		testkit.Equal(t, adopted, 2*256)
		testkit.Len(t, statusOf(m).Owned, 256)
		stop()
		ok(t, result())
	})
}

// TestShards_NotReadyBeforeItHasJoined: a rollout must not replace a member by a replica that is
// none. A new member joins while the former ones are there.
func TestShards_NotReadyBeforeItHasJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		var stops []func()
		var results []func() error
		for range 2 {
			former := newManager(api, sharded)
			former.Add(newFake("website", &diary{}))
			stop, result := start(t, former)
			stops, results = append(stops, stop), append(results, result)
		}
		testkit.Pass(time.Minute)
		d := newDeaf(api)
		d.of = "fieldSelector" // the watch of the group's Lease: it has a Lease of its own
		d.on.Store(true)
		m, c := healthy(t, d, sharded)
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		for range 3 {
			testkit.Pass(time.Second)
			want(t, c, "http://x/readyz/leader-election-operator", 200, "ok")
			notReady(t, c, "[-]shards-operator failed: ")
		}
		d.mend()
		testkit.Pass(10 * time.Second)
		want(t, c, "http://x/readyz", 200, "ok")
		testkit.Len(t, statusOf(m).Members, 3)
		for _, stop := range append(stops, stop) {
			stop()
		}
		for _, result := range append(results, result) {
			ok(t, result())
		}
	})
}

// TestShards_ReadyAtOnce: a member that joins does not wait for a former one to leave. A replica
// that waits for the leader of an earlier version, or for members with other settings, is ready,
// because a rollout ends those only then.
func TestShards_ReadyAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		former func(*manager.Options)
		line   string
	}{
		"as a member":     {sharded, "shards-operator ok"},
		"beside a leader": {elected, "holds the group's Lease; the group waits until it is released"},
		"beside members with another hash": {func(o *manager.Options) {
			sharded(o)
			o.LeaderElection.(*shard.Options).Partitioner = shard.ByNamespace()
		}, "its members use other settings"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				former := newManager(api, c.former)
				former.Add(newFake("website", &diary{}))
				stopFormer, formerEnds := start(t, former)
				testkit.Pass(time.Minute)
				m, probes := healthy(t, api, sharded)
				m.Add(newFake("website", &diary{}))
				stop, result := start(t, m)
				testkit.Pass(2 * time.Second)
				if status, says := get(t, probes, "http://x/readyz?verbose"); status != 200 || !strings.Contains(says, c.line) {
					t.Errorf("/readyz is %d, want 200 and %q:\n%s", status, c.line, says)
				}
				stopFormer()
				ok(t, formerEnds())
				testkit.Pass(time.Minute)
				testkit.Len(t, statusOf(m).Owned, 256)
				stop()
				ok(t, result())
			})
		})
	}
}
