// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// tree is a recursive type.
type tree struct {
	Next  *tree            `json:"next,omitempty"`
	All   []tree           `json:"all,omitempty"`
	ByKey map[string]*tree `json:"byKey,omitempty"`
	Text  [20]string       `json:"text,omitempty"`
}

// TestA6_SizesCoverWhatADecoderKeeps decodes JSON that becomes much larger in memory.
func TestA6_SizesCoverWhatADecoderKeeps(t *testing.T) {
	list := func(head, part, tail string) string {
		return head + strings.TrimSuffix(strings.Repeat(part+",", 20_000), ",") + tail
	}
	keys := func(head, value, tail string) string {
		var text strings.Builder
		for i := range 20_000 {
			name, _ := json.Marshal(strings.Repeat("k", i%7) + string(rune('a'+i%26)) + string(rune(0x4e00+i)))
			if text.WriteString(","); i == 0 {
				text.Reset()
			}
			text.Write(name)
			text.WriteString(":" + value)
		}
		return head + text.String() + tail
	}
	var s sizes
	for name, test := range map[string]struct {
		text string
		into any
	}{
		"empty structs":           {list(`{"spec":{"containers":[`, `{}`, `]}}`), &corev1.Pod{}},
		"an escaped name":         {list(`{"sp\u0065c":{"c\u006fntainers":[`, `{}`, `]}}`), &corev1.Pod{}},
		"spaces":                  {list(`{ "spec" : { "containers" : [ `, ` { } `, ` ] } }`), &corev1.Pod{}},
		"pointers":                {list(`{"spec":{"containers":[`, `{"securityContext":{}}`, `]}}`), &corev1.Pod{}},
		"strings":                 {list(`{"spec":{"containers":[{"args":[`, `""`, `]}]}}`), &corev1.Pod{}},
		"a map":                   {keys(`{"metadata":{"labels":{`, `""`, `}}}`), &corev1.Pod{}},
		"small maps":              {list(`{"spec":{"containers":[`, `{"resources":{"limits":{"a":1}}}`, `]}}`), &corev1.Pod{}},
		"an inline struct":        {list(`{"spec":{"volumes":[`, `{"emptyDir":{}}`, `]}}`), &corev1.Pod{}},
		"a recursive list":        {list(`{"all":[`, `{"next":{}}`, `]}`), &tree{}},
		"a recursive map":         {keys(`{"byKey":{`, `{}`, `}}`), &tree{}},
		"numbers without a type":  {list(`[`, `1`, `]`), new(any)},
		"objects without a type":  {list(`[`, `{"a":1}`, `]`), new(any)},
		"empty ones without type": {list(`[`, `{}`, `]`), new(any)},
		"lists without a type":    {list(`[`, `[[]]`, `]`), new(any)},
		"keys without a type":     {keys(`{`, `1`, `}`), new(any)},
		"members":                 {keys(`{`, `1`, `}`), &members{}},
		"the groups of a user":    {list(`{"request":{"userInfo":{"groups":[`, `""`, `]}}}`), &review{}},
		"the extra of a user":     {keys(`{"request":{"userInfo":{"extra":{`, `[]`, `}}}}`), &review{}},
	} {
		size := s.of([]byte(test.text), reflect.TypeOf(test.into))
		// The first decoding of a type also keeps tables of its fields.
		_ = kjson.UnmarshalCaseSensitivePreserveInts([]byte(test.text), reflect.New(reflect.TypeOf(test.into).Elem()).Interface())
		before := inUse()
		testkit.Equal(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(test.text), test.into), nil, name)
		kept := inUse() - before
		runtime.KeepAlive(test.into)
		t.Logf("%s: %d bytes of JSON, %d kept, estimated %d", name, len(test.text), kept, size)
		if kept > size+int64(len(test.text))+10_000 || size > 8*kept+10_000 {
			t.Errorf("%s: %d bytes of JSON become %d bytes, but the estimate is %d", name, len(test.text), kept, size)
		}
	}
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // small
}
