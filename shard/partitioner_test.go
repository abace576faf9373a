// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// key parses namespace/name.
func key(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func slotFor(t *testing.T, by Partitioner, k string) uint8 {
	t.Helper()
	s, err := by.Slot(key(k))
	testkit.NoError(t, err)
	return s
}

// TestBy_TheHashNeverChanges pins slots: another hash would give a key two owners during a rollout.
func TestBy_TheHashNeverChanges(t *testing.T) {
	text := ByFunc("team", func(k types.NamespacedName) string { return k.Name[:1] })
	for _, test := range []struct {
		by   Partitioner
		key  string
		want uint8
	}{
		{ByKey(), "default/web", 4},
		{ByKey(), "/node-1", 179},
		{Partitioner{}, "default/web", 4},
		{ByNamespace(), "default/web", 212},
		{ByNamespace(), "/node-1", 239},
		{ByName(), "default/web", 139},
		{text, "default/web", 67},
	} {
		testkit.Equal(t, slotFor(t, test.by, test.key), test.want, test.by, fmt.Sprintf("%s is in slot", test.key))
	}
	for by, want := range map[string]string{
		Partitioner{}.String(): "namespace/name fnv1a64-fmix64 256", ByNamespace().String(): "namespace fnv1a64-fmix64 256",
		ByName().String(): "name fnv1a64-fmix64 256", text.String(): "func team fnv1a64-fmix64 256",
	} {
		testkit.Equal(t, by, want, "the stored name")
	}
}

func TestBy_KeysThatBelongTogetherShareASlot(t *testing.T) {
	testkit.Equal(t, slotFor(t, ByNamespace(), "a/x"), slotFor(t, ByNamespace(), "a/y"), "the rest of the key counts")
	testkit.Equal(t, slotFor(t, ByName(), "a/x"), slotFor(t, ByName(), "b/x"), "the rest of the key counts")
}

// TestBy_NumberedNamesSpread: without the mixing, 1,000 numbered namespaces fill 10 slots.
func TestBy_NumberedNamesSpread(t *testing.T) {
	for _, test := range []struct {
		by     Partitioner
		format string
	}{
		{ByKey(), "default/web-%d"}, {ByNamespace(), "tenant-%03d/web"}, {ByName(), "default/web-%d"}, {ByKey(), "team-%[1]d/team-%[1]d"},
	} {
		count := [slots.Slots]int{}
		for i := range 1000 {
			count[slotFor(t, test.by, fmt.Sprintf(test.format, i))]++
		}
		used, most := 0, 0
		for _, n := range count {
			used, most = used+min(n, 1), max(most, n)
		}
		testkit.AtLeast(t, used, 240, test.by, test.format)
		testkit.AtMost(t, most, 16, test.by, test.format)
	}
}

func TestBy_AFunctionThatIsNotOneIsAnError(t *testing.T) {
	calls := 0
	for want, f := range map[string]func(types.NamespacedName) string{
		"must depend on the key only":         func(types.NamespacedName) string { calls++; return fmt.Sprint(calls) },
		"must return a text":                  func(types.NamespacedName) string { panic("no label") },
		"invalid memory address or nil point": nil,
	} {
		by := ByFunc("mine", f)
		if _, err := by.Slot(key("a/b")); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"func mine`) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestBy_AsksTwiceForOneKeyInAThousand: the function costs each event once.
func TestBy_AsksTwiceForOneKeyInAThousand(t *testing.T) {
	calls := 0
	by := ByFunc("mine", func(k types.NamespacedName) string { calls++; return k.Name })
	for i := range 3000 {
		slotFor(t, by, fmt.Sprint("a/", i))
	}
	testkit.Equal(t, calls, 3003, "calls for 3,000 keys")
	by = ByFunc("mine", func(types.NamespacedName) string { calls++; return fmt.Sprint(max(calls, 3500)) })
	for i := range 2000 { // it returns other texts from the 500th key on
		if _, err := by.Slot(key("a/b")); err != nil {
			testkit.Equal(t, i, 1000, "key", err)
			return
		}
	}
	t.Error("the function changes its answer, and no error says so")
}
