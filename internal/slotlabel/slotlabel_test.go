// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slotlabel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/slotlabel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byLength puts a key into the slot with the length of its name.
var byLength = &slotlabel.Label{
	Key: "slot",
	Slot: func(key types.NamespacedName) (uint8, error) {
		if key.Name == "broken" {
			return 0, errors.New("broken")
		}
		return uint8(len(key.Name)), nil
	},
	Value: func(owner schema.GroupKind, slot uint8) string { return fmt.Sprintf("%s.%d", owner.Kind, slot) },
}

func site(name string) *slotlabel.Owner {
	return &slotlabel.Owner{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Site"}, Key: types.NamespacedName{Name: name}}
}

func TestFix(t *testing.T) {
	type labels = map[string]string
	a := slotlabel.Of(slotlabel.With(t.Context(), byLength, 3))
	for what, c := range map[string]struct {
		owner    *slotlabel.Owner
		is, want labels
	}{
		"no labels":                             {site("abc"), nil, labels{"slot": "Site.3"}},
		"other labels":                          {site("abc"), labels{"a": "b"}, labels{"a": "b", "slot": "Site.3"}},
		"right":                                 {site("abc"), labels{"slot": "Site.3"}, labels{"slot": "Site.3"}},
		"edited":                                {site("abc"), labels{"slot": "Site.4"}, labels{"slot": "Site.3"}},
		"a controller in another slot":          {site("abcd"), labels{"a": "b"}, labels{"a": "b"}},
		"the child moves to another slot":       {site("abcd"), labels{"slot": "Site.3"}, labels{"slot": "Site.4"}},
		"no controller":                         {nil, labels{"a": "b"}, labels{"a": "b"}},
		"no controller any more":                {nil, labels{"a": "b", "slot": "Site.3"}, labels{"a": "b"}},
		"a function that fails changes nothing": {site("broken"), labels{"slot": "x"}, labels{"slot": "x"}},
	} {
		before := maps.Clone(c.is)
		got, differ := a.Fix(c.is, c.owner)
		if !maps.Equal(got, c.want) || differ == maps.Equal(got, before) {
			t.Errorf("%s: %v (differ: %t), want %v", what, got, differ, c.want)
		}
		if !maps.Equal(c.is, before) {
			t.Errorf("%s: the argument is now %v", what, c.is)
		}
	}
}

func TestControllerOf(t *testing.T) {
	owners := []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Other", Name: "a"},
		{APIVersion: "apps/v1", Kind: "Site", Name: "b", Controller: new(true)},
	}
	got := slotlabel.ControllerOf("default", owners)
	want := slotlabel.Owner{
		Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Site"},
		Key:  types.NamespacedName{Namespace: "default", Name: "b"},
	}
	if got == nil || *got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := slotlabel.ControllerOf("default", owners[:1]); got != nil {
		t.Errorf("got %v for an owner that is no controller", got)
	}
}

func TestOf_ANilLabelIsNone(t *testing.T) {
	if a := slotlabel.Of(slotlabel.With(context.Background(), nil, 3)); a != nil {
		t.Errorf("got %v", a)
	}
}
