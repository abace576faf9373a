// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

// left is what a term hands over: a line for each resource and each deletion.
func left(t *fence.Term) []string {
	var all []string
	for _, w := range t.Written().Written {
		says := w.Resource.String() + " " + w.ResourceVersion
		if w.Unknown > 0 {
			says += fmt.Sprintf(" unknown %d", w.Unknown)
		}
		all = append(all, says)
		for _, d := range w.Deleted {
			says := w.Resource.String() + " without " + string(d.UID)
			if d.Marked {
				says += ", or marked"
			}
			all = append(all, says)
		}
	}
	return all
}

// TestL9_WhatATermHandsOver: the newest version of each resource, and the deletions.
func TestL9_WhatATermHandsOver(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	c := newClient(t, api, client.Options{})
	maps, secrets := client.For[*corev1.ConfigMap](c), client.For[*corev1.Secret](c)
	leading := fence.New(fence.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	under := fence.With(t.Context(), leading)
	ctx := journal.With(under, journal.New(journal.Origin{}))
	config := func(ctx context.Context, name string) *corev1.ConfigMap {
		t.Helper()
		m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}})
		testkit.NoError(t, err)
		return m
	}
	a, gone, held := config(ctx, "a"), config(ctx, "gone"), config(ctx, "held")
	s, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "s"}})
	held.Finalizers = []string{"setpoint.dev/test"}
	held, err2 := maps.Update(ctx, held)
	a.Data = map[string]string{"k": "v"}
	a, err3 := maps.Update(ctx, a)
	_, err4 := maps.Update(journal.With(ctx, journal.New(journal.Origin{})), a) // changes nothing
	if err != nil || err2 != nil || err3 != nil || err4 != nil {
		t.Fatal(err, err2, err3, err4)
	}
	for _, of := range []*corev1.ConfigMap{gone, held} {
		testkit.NoError(t, maps.Delete(ctx, name("x", of.Name)))
	}
	marked := api.Version()
	config(fence.With(journal.With(t.Context(), journal.New(journal.Origin{})), nil), "without-a-term")
	config(under, "without-a-ledger")
	testkit.NoError(t, testkit.Err(maps.GetLive(ctx, name("x", "a"))))
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}}); err == nil {
		t.Fatal("it was created twice")
	}
	want := []string{"configmaps " + marked, "configmaps without " + string(gone.UID), "secrets " + s.ResourceVersion}
	testkit.SlicesEqual(t, left(leading), want)
	testkit.Equal(t, leading.Written().Written[0].Host, sim.Host)
	testkit.Equal(t, leading.Inherited(), nil)

	next := fence.New(fence.Token{}, time.Now(), time.Hour)
	defer next.End(nil)
	h := leading.Written()
	h.Holder = "a"
	next.Inherit(h)
	a, err = maps.Update(journal.With(fence.With(t.Context(), next), journal.New(journal.Origin{})), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}})
	testkit.NoError(t, err)
	want[0] = "configmaps " + a.ResourceVersion
	if got := left(next); !slices.Equal(got, want) || next.Inherited().Holder != "a" || next.Inherited().Written[0].ResourceVersion != marked {
		t.Errorf("the next term hands over\n%s\nwant\n%s\nand has inherited %+v", strings.Join(got, "\n"), strings.Join(want, "\n"), next.Inherited())
	}
}

// TestL9_EffectsThatAreHandedOver: what the answers tell, in whichever order they come.
func TestL9_EffectsThatAreHandedOver(t *testing.T) {
	object := func(v int) reply {
		return ok(`{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"` + strconv.Itoa(v) + `"}}`)
	}
	status := func() reply { return ok(`{"kind":"Status","status":"Success","details":{"uid":"u"}}`) }
	for name, c := range map[string]struct {
		do   []any // request, reply
		want []string
	}{
		"updates, answered in another order": {[]any{"PUT " + pods + "/p", object(10), "PUT " + pods + "/p", object(9)}, []string{"pods 10"}},
		"deleted":                            {[]any{"DELETE " + pods + "/p", status()}, []string{"pods ", "pods without u"}},
		"deleted, and then an old answer":    {[]any{"DELETE " + pods + "/p", status(), "PUT " + pods + "/p", object(9)}, []string{"pods 9", "pods without u"}},
		"evicted, and the answer has no UID": {[]any{"PUT " + pods + "/p", object(9), "POST " + pods + "/p/eviction", ok(success)}, []string{"pods 9 unknown 1"}},
		"a collection": {[]any{"PUT " + pods + "/p", object(9), "DELETE " + pods, ok(`{"kind":"PodList","items":[{"metadata":{"name":"p","namespace":"ns","uid":"u"}}]}`)},
			[]string{"pods 9", "pods without u, or marked"}},
		"marked, and then gone": {[]any{"DELETE " + pods, ok(`{"kind":"PodList","items":[{"metadata":{"name":"p","namespace":"ns","uid":"u"}}]}`), "DELETE " + pods + "/p", status()},
			[]string{"pods ", "pods without u"}},
		"lost answers": {[]any{"PUT " + pods + "/p", reply{code: 500}, "PUT " + pods + "/p", ok("")}, []string{"pods  unknown 2"}},
		"refused":      {[]any{"PUT " + pods + "/p", reply{code: 409}, "PUT " + pods + "/p?dryRun=All", object(9)}, nil},
		"a review":     {[]any{"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ok(`{"status":{"allowed":true}}`)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			leading := fence.New(fence.Token{}, time.Now(), time.Hour)
			defer leading.End(nil)
			for i := 0; i < len(c.do); i += 2 {
				handed(t, leading, c.do[i].(string), c.do[i+1].(reply))
			}
			testkit.SlicesEqual(t, left(leading), c.want, "it hands over")
		})
	}
}

// handed makes a request under a term with a ledger, and reads the answer.
func handed(t *testing.T, leading *fence.Term, request string, answer reply) {
	t.Helper()
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: answer}, client.Options{})
	testkit.NoError(t, err)
	method, path, _ := strings.Cut(request, " ")
	ctx := journal.With(fence.With(t.Context(), leading), journal.New(journal.Origin{}))
	req, _ := http.NewRequestWithContext(ctx, method, "http://x.test"+path, nil)
	resp, err := c.HTTPClient().Do(req)
	testkit.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	err = errors.Join(err, resp.Body.Close())
	testkit.NoError(t, err)
}

// update is a write of an object as the transport records it.
func update(host, resource, version string) *ledger.Write {
	return &ledger.Write{
		Request: ledger.Request{Verb: "update", Resource: resource, Namespace: "ns", Name: "x", Host: host},
		UID:     "u", ResourceVersion: version, Effect: ledger.Stored,
	}
}

// deletion is one whose answer has no version.
func deletion(uid int) *ledger.Write {
	w := update("", "pods", "")
	w.Verb, w.Effect, w.UID = "delete", ledger.Gone, types.UID(strconv.Itoa(uid))
	return w
}

// TestL9_AWriteInEachClusterIsHandedOver: versions of two API servers are not compared.
func TestL9_AWriteInEachClusterIsHandedOver(t *testing.T) {
	leading := fence.New(fence.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	leading.Wrote(update("https://west.test", "pods", "1"))
	leading.Wrote(update("https://east.test", "pods", "1000"))
	testkit.SlicesEqual(t, left(leading), []string{"pods 1000", "pods 1"}, "it hands over")
}

// TestL9_TheNewestDeletionsAreHandedOver: a hundred, of the last three minutes. Lost answers count
// for three minutes, too.
func TestL9_TheNewestDeletionsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leading := fence.New(fence.Token{}, time.Now(), time.Hour)
		defer leading.End(nil)
		leading.Wrote(update("", "pods", "9"))
		for n := range 250 {
			leading.Wrote(deletion(n))
		}
		leading.Wrote(update("", "pods", ""))
		if got := left(leading); len(got) != 101 || got[0] != "pods 9 unknown 1" || got[1] != "pods without 150" || got[100] != "pods without 249" {
			t.Errorf("it hands over %q", got)
		}
		time.Sleep(2 * time.Minute)
		leading.Wrote(deletion(250))
		time.Sleep(time.Minute + 1)
		testkit.SlicesEqual(t, left(leading), []string{"pods 9", "pods without 250"}, "three minutes later it hands over")
	})
}

// TestL9_WhatWasInheritedIsNotHandedOnForEver: a write that never shows does not delay every later
// handover.
func TestL9_WhatWasInheritedIsNotHandedOnForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, leading := fence.New(fence.Token{}, time.Now(), time.Hour), fence.New(fence.Token{}, time.Now(), time.Hour)
		defer before.End(nil)
		defer leading.End(nil)
		before.Wrote(update("", "secrets", "7"))
		leading.Inherit(before.Written())
		time.Sleep(time.Minute)
		testkit.Len(t, left(leading), 1, "within a minute it hands on")
		time.Sleep(time.Second)
		testkit.Len(t, left(leading), 0, "after a minute it hands on")
	})
}
