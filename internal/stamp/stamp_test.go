// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const host = "https://api.test"

func codec(limit int) Codec { return Codec{Identity: "pod-a", Host: host, Limit: limit} }

var at = time.Date(2026, 11, 23, 12, 0, 0, 123456000, time.UTC)

func written(resource, version string, deleted ...fence.Deletion) fence.Written {
	return fence.Written{Host: host, Resource: schema.ParseGroupResource(resource), ResourceVersion: version, Deleted: deleted}
}

// TestCodec: a decoded text is the handover from which it was made.
func TestCodec(t *testing.T) {
	elsewhere, lost := written("pods", "7"), written("secrets", "")
	elsewhere.Host, lost.Unknown = "https://other.test", 2
	h := &fence.Handover{Unknown: 3, Written: []fence.Written{
		written("deployments.apps", "1042"), elsewhere, lost,
		written("pods", "9", fence.Deletion{UID: "gone"}, fence.Deletion{UID: "marked", Marked: true}),
	}}
	text := codec(4<<10).Encode(h, at)
	got, err := codec(4 << 10).Decode(text)
	h.Holder, h.Released = "pod-a", at
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%s\nis   %+v, %v\nwant %+v", text, got, err, h)
	}
	testkit.Equal(t, codec(4<<10).Encode(&fence.Handover{}, at), "", "nothing")
	testkit.Equal(t, codec(20).Encode(h, at), "", "without room")
}

// TestL9_WithoutRoomALotIsUnknown: versions stay longest, and what is left out counts as unknown.
func TestL9_WithoutRoomALotIsUnknown(t *testing.T) {
	many := written("pods", "9")
	for n := range 400 {
		many.Deleted = append(many.Deleted, fence.Deletion{UID: types.UID(fmt.Sprintf("3c2f1a50-9d0e-4c7c-8f43-%012d", n))})
	}
	h := &fence.Handover{Written: []fence.Written{written("deployments.apps", "1042"), many}}
	for limit, want := range map[int]struct{ deleted, unknown, lost int }{
		20 << 10: {400, 0, 0}, 5 << 10: {100, 300, 0}, 1 << 10: {10, 390, 0}, 250: {0, 400, 0}, 120: {0, 0, 2},
	} {
		text := codec(limit).Encode(h, at)
		got, err := codec(limit).Decode(text)
		if err != nil || got.Unknown != want.lost || len(got.Written) != 2-want.lost {
			t.Errorf("%d bytes: %s is %+v, %v", limit, text, got, err)
			continue
		}
		if len(got.Written) == 0 {
			continue
		}
		pods := got.Written[1]
		if len(pods.Deleted) != want.deleted || pods.Unknown != want.unknown || pods.ResourceVersion != "9" || got.Written[0].ResourceVersion != "1042" {
			t.Errorf("%d bytes: %+v", limit, got)
		}
		if n := len(pods.Deleted); n > 0 && pods.Deleted[n-1] != many.Deleted[399] {
			t.Errorf("%d bytes: the last deletion is %s", limit, pods.Deleted[n-1].UID)
		}
	}
}

// TestL9_AnUnreadableTextIsAnUnknownWrite: also one of the version before this format.
func TestL9_AnUnreadableTextIsAnUnknownWrite(t *testing.T) {
	before := `{"holder":"pod-b","released":"2026-11-23T12:00:00.123456Z","unknown":4,"resources":["pods"],"salts":["s"],"writes":[{"n":"x","v":"7"}]}`
	for text, want := range map[string]struct {
		err    string
		holder string
		n      int
	}{
		"{":                       {"unexpected end", "", 1},
		strings.Repeat(" ", 5000): {"it has 5000 bytes; the limit is 4096", "", 1},
		before:                    {"the format of another version", "pod-b", 4},
		`{"holder":"pod-b","released":"2026-11-23T12:00:00.123456Z"}`: {"the format of another version", "pod-b", 1},
		`{"holder":"pod-b","written":{"pods":1}}`:                     {"cannot unmarshal", "pod-b", 1},
	} {
		h, err := codec(4 << 10).Decode(text)
		if err == nil || !strings.Contains(err.Error(), want.err) || h.Unknown != want.n || h.Holder != want.holder || len(h.Written) > 0 {
			t.Errorf("%.60s: %+v, %v; want %+v", text, h, err, want)
		}
		if want.holder != "" && text == before && !h.Released.Equal(at) {
			t.Errorf("released at %s", h.Released)
		}
	}
}

// TestL9_AnEarlierVersionReportsUnknownWrites: it reads these fields, and no writes.
func TestL9_AnEarlierVersionReportsUnknownWrites(t *testing.T) {
	text := codec(4<<10).Encode(&fence.Handover{Written: []fence.Written{written("pods", "7"), written("secrets", "9")}}, at)
	var before struct {
		Holder    string
		Released  time.Time
		Unknown   int
		Resources []string
		Salts     []string
		Writes    []map[string]any
	}
	if err := json.Unmarshal([]byte(text), &before); err != nil || before.Holder != "pod-a" || !before.Released.Equal(at) || before.Unknown != 2 || before.Writes != nil {
		t.Errorf("it reads %+v, %v", before, err)
	}
}

// FuzzDecode: no text makes Decode panic. What it accepts can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add(codec(4<<10).Encode(&fence.Handover{Unknown: 1, Written: []fence.Written{written("pods", "7", fence.Deletion{UID: "u"})}}, time.Unix(0, 0)))
	f.Add(`{"holder":"x","unknown":1,"written":[{"resource":"a.b","marked":["x"],"host":"y"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := codec(4 << 10).Decode(text)
		if err != nil {
			return
		}
		c := codec(64 << 10)
		c.Identity = h.Holder
		again := c.Encode(h, h.Released)
		if again == "" {
			return
		}
		got, err := c.Decode(again)
		if err != nil || len(got.Written) != len(h.Written) || got.Unknown != h.Unknown {
			t.Errorf("%s\nbecomes %s: %v", text, again, err)
		}
	})
}

// TestL9_WithoutRoomOnlyReadsAreLeftOut: what was written, and its deletions, stay.
func TestL9_WithoutRoomOnlyReadsAreLeftOut(t *testing.T) {
	for _, reads := range []int{10, 100} {
		h := &fence.Handover{Written: []fence.Written{written("deployments.apps", "104212345", fence.Deletion{UID: "3c2f1a50-9d0e-4c7c-8f43-000000000001"})}}
		for i := range reads {
			read := written(fmt.Sprintf("resource%d.group.example.com", i), "104212345")
			read.Read = true
			h.Written = append(h.Written, read)
		}
		got, err := codec(2 << 10).Decode(codec(2<<10).Encode(h, at))
		testkit.NoError(t, err)
		if want := map[int]int{10: 11, 100: 1}[reads]; len(got.Written) != want || len(got.Written[0].Deleted) != 1 || got.Unknown != 0 {
			t.Errorf("with %d resources that were read, the text has %+v", reads, got)
		}
	}
}
