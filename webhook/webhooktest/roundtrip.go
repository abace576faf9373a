// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Options configures RoundTrip. The zero value works.
type Options struct {
	// Seed makes the objects of a failed test again; the failure prints it. Default: 0, a random
	// one.
	Seed int64
	// Objects is the number of objects for each version and direction. Default: 200.
	Objects int
	// Adjust changes a random object, for example to give a field one of its allowed values.
	// Default: none.
	Adjust func(obj client.Object)
	// HubOnly are paths of hub fields that the other versions cannot express, such as spec.cache. A
	// conversion may lose them and the fields below them. Default: none; keep such fields in an
	// annotation.
	HubOnly []string
}

// RoundTrip fails the test if a conversion of hooks loses a field. It converts random objects of
// each version to the hub and back, and objects of the hub to each version and back, as the API
// server's requests do. It compares them as JSON.
//
// A conversion may add annotations to an object, as long as the others stay.
func RoundTrip(t testing.TB, hooks *webhook.Webhooks, o Options) {
	t.Helper()
	if err := hooks.Validate(); err != nil {
		t.Errorf("the webhooks have mistakes: %v", err)
		return
	}
	all := hooks.Conversions()
	if len(all) == 0 {
		t.Errorf("the webhooks have no conversion; add one with webhook.AddConversion")
	}
	o.Seed, o.Objects = cmp.Or(o.Seed, rand.Int63()), cmp.Or(o.Objects, 200) //nolint:gosec // for tests
	for _, c := range all {
		for _, way := range []direction{{c.Spoke, c.Hub, nil}, {c.Hub, c.Spoke, o.HubOnly}} {
			if err := way.check(t, hooks, o); err != nil {
				t.Errorf("%s from %s to %s and back: %v (seed %d)", way.from.Kind, way.from.Version, way.to.Version, err, o.Seed)
			}
		}
	}
}

type direction struct {
	from, to schema.GroupVersionKind
	mayLose  []string
}

func (d direction) check(t testing.TB, hooks *webhook.Webhooks, o Options) error {
	scheme := hooks.Scheme()
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(o.Seed), serializer.NewCodecFactory(scheme)) //nolint:gosec // for tests
	fill.NumElements(0, 3)
	for range o.Objects {
		made, err := scheme.New(d.from)
		if err != nil {
			return err
		}
		obj, ok := made.(client.Object)
		if !ok {
			return fmt.Errorf("%T has no metadata", made)
		}
		fill.Fill(obj)
		if o.Adjust != nil {
			o.Adjust(obj)
		}
		obj.GetObjectKind().SetGroupVersionKind(d.from)
		before, err := json.Marshal(obj)
		if err != nil {
			return fmt.Errorf("a random object cannot be written as JSON; make it valid with Options.Adjust: %w", err)
		}
		there, err := hooks.ConvertObject(t.Context(), before, d.to.GroupVersion().String())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, before)
		}
		after, err := hooks.ConvertObject(t.Context(), there, d.from.GroupVersion().String())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, there)
		}
		if lost := d.lost(before, after); len(lost) > 0 {
			return fmt.Errorf("%s\nbefore  %s\nbetween %s", strings.Join(lost[:min(len(lost), 10)], "; "), before, there)
		}
	}
	return nil
}

func (d direction) lost(before, after []byte) []string {
	r := &report{format: "%s: %s became %s", mayLose: d.mayLose, mayAdd: "metadata.annotations"}
	r.compare("", decode(before), decode(after))
	return r.lost
}

// decode keeps numbers as they are written.
func decode(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	_ = d.Decode(&v) // this package or the conversion has written it
	return v
}
