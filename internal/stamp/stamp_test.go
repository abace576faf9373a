// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

const host = "https://api.test"

func codec(limit int) Codec { return Codec{Identity: "pod-a", Host: host, Limit: limit} }

func write(resource, namespace, name string) ledger.Write {
	return ledger.Write{
		Request: ledger.Request{Verb: "update", Group: "apps", Resource: resource, Namespace: namespace, Name: name, Host: host},
		UID:     types.UID("uid of " + name), ResourceVersion: "7", Effect: ledger.Stored,
	}
}

func labelled(w ledger.Write, labels map[string]string) ledger.Write {
	w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: labels}}
	return w
}

// TestCodec: a text has what it was made from, with hashes. What was hashed before stays as it is.
func TestCodec(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 123456000, time.UTC)
	gone, accepted, elsewhere := write("pods", "a", "gone"), write("pods", "a", "accepted"), write("pods", "a", "elsewhere")
	gone.Verb, gone.Effect, gone.ResourceVersion = "delete", ledger.Gone, ""
	accepted.Verb, accepted.Effect, accepted.Unknown = "delete", ledger.Accepted, "whether it is gone or only marked"
	elsewhere.Host, elsewhere.Subresource = "https://other.test", "status"
	inherited := write("deployments", "b", "inherited")
	writes := []ledger.Write{
		inherited.Hashed("salt of another term"), gone, accepted, elsewhere,
		labelled(write("deployments", "b", "labels"), map[string]string{"on": "yes"}),
		labelled(write("deployments", "b", "no labels"), map[string]string{}),
	}
	text := codec(4<<10).Encode(writes, 3, at)
	got, err := codec(4 << 10).Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Holder != "pod-a" || !got.Released.Equal(at) || got.Unknown != 3 || len(got.Writes) != len(writes) {
		t.Fatalf("%s\nis %+v", text, got)
	}
	salt := got.Writes[1].Salt
	for i := range writes {
		if got, want := fmt.Sprintf("%+v", got.Writes[i]), fmt.Sprintf("%+v", writes[i].Hashed(salt)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for _, secret := range []string{"uid of", "inherited", "labels", "yes"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
	if text := codec(4<<10).Encode(nil, 0, at); text != "" {
		t.Errorf("nothing is %s", text)
	}
	if text := codec(20).Encode(writes, 0, at); text != "" {
		t.Errorf("without room: %s", text)
	}
}

// TestL9_TheNewestWriteOfEachInformerIsKept: without room for all, the last write that an informer
// can show is kept longer than newer writes of another informer, and the order stays.
func TestL9_TheNewestWriteOfEachInformerIsKept(t *testing.T) {
	other := write("pods", "a", "other host")
	other.Host = "https://other.test"
	writes := []ledger.Write{
		write("configmaps", "a", "c0"), write("configmaps", "a", "c1"),
		write("pods", "b", "in b"), other,
		labelled(write("pods", "a", "on"), map[string]string{"on": "yes"}),
	}
	want := slices.Clone(writes[1:])
	for i := range 200 {
		writes = append(writes, write("pods", "a", fmt.Sprintf("p%d", i)))
	}
	const limit = 2 << 10
	text := codec(limit).Encode(writes, 1, time.Now())
	got, err := codec(limit).Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	kept := len(got.Writes)
	want = append(want, writes[len(writes)-kept+len(want):]...)
	if kept < 10 || got.Unknown != 1+len(writes)-kept || len(text) > limit || len(text) < limit*4/5 {
		t.Errorf("%d bytes with %d writes and %d unknown ones", len(text), kept, got.Unknown)
	}
	for i := range want {
		if hashed := want[i].Hashed(got.Writes[i].Salt); got.Writes[i].Name != hashed.Name {
			t.Fatalf("write %d is another one than %s", i, want[i].Name)
		}
	}
}

func TestDecode_Refuses(t *testing.T) {
	many := `{"resources":["pods"],"salts":["s"],"writes":[{"n":"x"}` + strings.Repeat(`,{"n":"x"}`, term.MaxHandedOver) + `]}`
	for text, want := range map[string]string{
		"{":                       "unexpected end",
		strings.Repeat(" ", 5000): "it has 5000 bytes; the limit is 4096",
		many:                      "it has 101 writes; the limit is 100",
		`{"writes":[{"n":"x"}]}`:  "write 0 has no resource or no salt",
		`{"resources":["pods"],"salts":[""],"writes":[{"n":"x"}]}`:         "write 0 has no resource or no salt",
		`{"resources":["pods"],"salts":["s"],"writes":[{"n":"x","r":1}]}`:  "write 0 has no resource or no salt",
		`{"resources":["pods"],"salts":["s"],"writes":[{"n":"x","s":-1}]}`: "write 0 has no resource or no salt",
	} {
		if h, err := codec(4 << 10).Decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %+v, %v; want %s", text, h, err, want)
		}
	}
}

// FuzzDecode: no text makes Decode panic. What it accepts can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add(codec(4<<10).Encode([]ledger.Write{labelled(write("pods", "a", "x"), map[string]string{"a": "b"})}, 1, time.Unix(0, 0)))
	f.Add(`{"resources":["pods"],"salts":["s"],"writes":[{"n":"x","e":"accepted","h":"y"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := codec(4 << 10).Decode(text)
		if err != nil {
			return
		}
		c := codec(64 << 10)
		c.Identity = h.Holder
		again := c.Encode(h.Writes, h.Unknown, h.Released)
		if again == "" {
			return
		}
		got, err := c.Decode(again)
		if err != nil || len(got.Writes) != len(h.Writes) || got.Unknown != h.Unknown {
			t.Errorf("%s\nbecomes %s: %v", text, again, err)
		}
	})
}
