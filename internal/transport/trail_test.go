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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// left is what a term hands over, a line for each object.
func left(t *term.Term) []string {
	writes, _ := t.Written()
	var all []string
	for _, w := range writes {
		says := fmt.Sprintf("%s %s/%s %s@%s", w.Resource, w.Namespace, w.Name, w.UID, w.ResourceVersion)
		if w.Effect != ledger.Stored {
			says += " " + string(w.Effect)
		}
		if w.Object != nil {
			says += fmt.Sprint(" ", w.Object.(*metav1.PartialObjectMetadata).Labels)
		}
		all = append(all, says)
	}
	return all
}

// TestL9_WhatATermHandsOver: of each object the newest, in the order in which they were written.
func TestL9_WhatATermHandsOver(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	c := newClient(t, api, client.Options{})
	maps, secrets := client.For[*corev1.ConfigMap](c), client.For[*corev1.Secret](c)
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	under := term.With(t.Context(), leading)
	ctx := ledger.With(under, ledger.New(ledger.Origin{Decode: func(r schema.GroupResource) bool { return r.Resource == "secrets" }}))
	config := func(ctx context.Context, name string) *corev1.ConfigMap {
		t.Helper()
		m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, gone, held := config(ctx, "a"), config(ctx, "gone"), config(ctx, "held")
	config(term.With(ledger.With(t.Context(), ledger.New(ledger.Origin{})), nil), "without-a-term")
	config(under, "without-a-ledger")
	s, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "s", Labels: map[string]string{"on": "yes"}}})
	held.Finalizers = []string{"setpoint.dev/test"}
	held, err2 := maps.Update(ctx, held)
	a.Data = map[string]string{"k": "v"}
	a, err3 := maps.Update(ctx, a)
	_, err4 := maps.Update(ledger.With(ctx, ledger.New(ledger.Origin{})), a) // changes nothing
	if err != nil || err2 != nil || err3 != nil || err4 != nil {
		t.Fatal(err, err2, err3, err4)
	}
	for _, of := range []*corev1.ConfigMap{gone, held} {
		if err := maps.Delete(ctx, name("x", of.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := maps.GetLive(ctx, name("x", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}}); err == nil {
		t.Fatal("it was created twice")
	}
	want := []string{
		"secrets x/s " + string(s.UID) + "@" + s.ResourceVersion + " map[on:yes]",
		"configmaps x/a " + string(a.UID) + "@" + a.ResourceVersion,
		"configmaps x/gone " + string(gone.UID) + "@" + gone.ResourceVersion + " gone",
		"configmaps x/held " + string(held.UID) + "@" + api.Version(),
	}
	if got := left(leading); !slices.Equal(got, want) {
		t.Errorf("it hands over\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if writes, _ := leading.Written(); writes[0].Host != sim.Host || writes[0].Group != "" {
		t.Errorf("it hands over %+v", writes[0])
	}
	if leading.Inherited() != nil {
		t.Error("it has inherited something")
	}

	next := term.New(term.Token{}, time.Now(), time.Hour)
	defer next.End(nil)
	writes, _ := leading.Written()
	next.Inherit(term.Handover{Holder: "a", Writes: writes})
	a, err = maps.Update(ledger.With(term.With(t.Context(), next), ledger.New(ledger.Origin{})), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	want = append(append(want[:1:1], want[2:]...), "configmaps x/a "+string(a.UID)+"@"+a.ResourceVersion)
	if got := left(next); !slices.Equal(got, want) || len(next.Inherited().Writes) != 4 || next.Inherited().Holder != "a" {
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
		do      []any // request, reply
		want    []string
		unknown int
	}{
		"updates, answered in another order": {[]any{"PUT " + pods + "/p", object(10), "PUT " + pods + "/p", object(9)}, []string{"pods ns/p u@10"}, 0},
		"deleted":                            {[]any{"DELETE " + pods + "/p", status()}, []string{"pods ns/p u@ gone"}, 0},
		"deleted, and then an old answer":    {[]any{"DELETE " + pods + "/p", status(), "PUT " + pods + "/p", object(9)}, []string{"pods ns/p u@9 gone"}, 0},
		"evicted, after that nobody knows whose UID it is": {[]any{"PUT " + pods + "/p", object(9), "POST " + pods + "/p/eviction", ok(success)},
			[]string{"pods ns/p u@9", "pods ns/p @ accepted"}, 0},
		"a collection": {[]any{"PUT " + pods + "/p", object(9), "DELETE " + pods, ok(`{"kind":"PodList","items":[{"metadata":{"name":"p","namespace":"ns","uid":"u"}}]}`)},
			[]string{"pods ns/p u@9 accepted"}, 0},
		"marked, and then written": {[]any{"DELETE " + pods, ok(`{"kind":"PodList","items":[{"metadata":{"name":"p","namespace":"ns","uid":"u"}}]}`), "PUT " + pods + "/p", object(9)},
			[]string{"pods ns/p u@9"}, 0},
		"nobody knows": {[]any{"PUT " + pods + "/p", reply{code: 500}, "PUT " + pods + "/p", ok("")}, nil, 2},
		"refused":      {[]any{"PUT " + pods + "/p", reply{code: 409}, "PUT " + pods + "/p?dryRun=All", object(9)}, nil, 0},
		"a review":     {[]any{"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ok(`{"status":{"allowed":true}}`)}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			leading := term.New(term.Token{}, time.Now(), time.Hour)
			defer leading.End(nil)
			for i := 0; i < len(c.do); i += 2 {
				handed(t, leading, c.do[i].(string), c.do[i+1].(reply))
			}
			if got := left(leading); !slices.Equal(got, c.want) {
				t.Errorf("it hands over %q, want %q", got, c.want)
			}
			if _, n := leading.Written(); n != c.unknown {
				t.Errorf("of %d nobody knows, want %d", n, c.unknown)
			}
		})
	}
}

// TestL9_ATermHandsOverSoMuch: at most, the newest, and some of each resource.
func TestL9_ATermHandsOverSoMuch(t *testing.T) {
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	write := func(resource string, n int) {
		handed(t, leading, fmt.Sprintf("PUT /api/v1/namespaces/ns/%s/o%d", resource, n),
			ok(fmt.Sprintf(`{"metadata":{"name":"o%d","namespace":"ns","uid":"%s-%d","resourceVersion":"%d"}}`, n, resource, n, 1000+n)))
	}
	write("secrets", 1)
	write("secrets", 2)
	for n := range 2000 {
		write("pods", n)
	}
	got := left(leading)
	if len(got) != term.MaxHandedOver || got[0] != "secrets ns/o2 secrets-2@1002" || got[1] != "pods ns/o1901 pods-1901@2901" || got[99] != "pods ns/o1999 pods-1999@2999" {
		t.Errorf("it hands over %d: %q", len(got), got)
	}
}

// handed makes a request under a term with a ledger, and reads the answer.
func handed(t *testing.T, leading *term.Term, request string, answer reply) {
	t.Helper()
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: answer}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	method, path, _ := strings.Cut(request, " ")
	ctx := ledger.With(term.With(t.Context(), leading), ledger.New(ledger.Origin{}))
	req, _ := http.NewRequestWithContext(ctx, method, "http://x.test"+path, nil)
	resp, err := c.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestL9_WhatWasInheritedIsNotHandedOnForEver: a write that never shows does not delay every later
// handover.
// TestL9_AWriteInEachClusterIsHandedOver: many later writes to another API server do not displace
// it.
func TestL9_AWriteInEachClusterIsHandedOver(t *testing.T) {
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	wrote := func(host, name string) {
		leading.Wrote(&ledger.Write{
			Request: ledger.Request{Verb: "update", Resource: "pods", Namespace: "ns", Name: name, Host: host},
			UID:     types.UID(host + name), ResourceVersion: "1", Effect: ledger.Stored,
		})
	}
	wrote("https://west.test", "a")
	for i := range 2 * term.MaxHandedOver {
		wrote("https://east.test", fmt.Sprint("b", i))
	}
	writes, _ := leading.Written()
	if !slices.ContainsFunc(writes, func(w ledger.Write) bool { return w.Host == "https://west.test" }) {
		t.Errorf("none of %d writes is of west", len(writes))
	}
}

func TestL9_WhatWasInheritedIsNotHandedOnForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leading := term.New(term.Token{}, time.Now(), time.Hour)
		defer leading.End(nil)
		w := ledger.Write{Request: ledger.Request{Verb: "update", Resource: "secrets", Namespace: "x", Name: "s"}, UID: "u", ResourceVersion: "7", Effect: ledger.Stored}
		leading.Inherit(term.Handover{Writes: []ledger.Write{w}})
		time.Sleep(time.Minute)
		if got := left(leading); len(got) != 1 {
			t.Errorf("within a minute it hands on %q", got)
		}
		time.Sleep(time.Second)
		if got := left(leading); len(got) != 0 {
			t.Errorf("after a minute it hands on %q", got)
		}
	})
}

// TestL9_HashedWritesAreHandedOnAsTheyAre: with their salt, except for objects that this term has
// written again.
func TestL9_HashedWritesAreHandedOnAsTheyAre(t *testing.T) {
	salt := ledger.NewSalt()
	before := func(name string, effect ledger.Effect) ledger.Write {
		w := ledger.Write{
			Request: ledger.Request{Verb: "update", Resource: "pods", Namespace: "ns", Name: name}, UID: "u", ResourceVersion: "7", Effect: effect,
			Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"on": "yes"}}},
		}
		if effect != ledger.Stored {
			w.Verb = "delete"
		}
		return w.Hashed(salt)
	}
	first, again, marked, gone := before("first", ledger.Stored), before("again", ledger.Stored), before("marked", ledger.Accepted), before("gone", ledger.Gone)
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	leading.Inherit(term.Handover{Writes: []ledger.Write{first, again, marked, gone}})
	for _, name := range []string{"again", "marked", "gone"} {
		handed(t, leading, "PUT "+pods+"/"+name, ok(`{"metadata":{"name":"`+name+`","namespace":"ns","uid":"u","resourceVersion":"9"}}`))
	}
	labels := fmt.Sprintf(" map[%s:%s]", salt.Hash("label", "on"), salt.Hash("value", "on=yes"))
	want := []string{
		"pods " + first.Namespace + "/" + first.Name + " " + string(first.UID) + "@7" + labels,
		"pods " + gone.Namespace + "/" + gone.Name + " " + string(gone.UID) + "@7 gone" + labels,
		"pods ns/again u@9", "pods ns/marked u@9", "pods ns/gone u@9",
	}
	if got := left(leading); !slices.Equal(got, want) {
		t.Errorf("it hands over\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if writes, _ := leading.Written(); writes[0].Salt != salt || writes[2].Salt != "" || writes[0].Hashed("other").Name != first.Name {
		t.Errorf("the salts are %q and %q", writes[0].Salt, writes[2].Salt)
	}
}
