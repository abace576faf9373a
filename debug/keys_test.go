// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

// listed is a controller that is not run and has keys.
type listed struct {
	fixed

	keys []controller.KeySummary
}

func (l listed) Keys() iter.Seq[controller.KeySummary] { return slices.Values(l.keys) }

func queued(key, state string, seconds int) controller.KeySummary {
	return controller.KeySummary{Key: key, State: state, Since: began().Add(time.Duration(seconds) * time.Second)}
}

func broken(key string, reason why.Reason, seconds, attempts int) controller.KeySummary {
	k := queued(key, "waiting", seconds)
	f := failed(key, reason, seconds)
	k.Failure, k.Attempts = &f.Failure, attempts
	return k
}

// TestKeys_Selects: parameters select and sort keys.
func TestKeys_Selects(t *testing.T) {
	h := debug.Keys(listed{fixed: fixed{name: "website"}, keys: []controller.KeySummary{
		queued("default/Blog", "ready", 5), queued("default/shop", "held", 1), broken("prod/shop", why.Forbidden, 3, 2), broken("prod/<b>", why.Conflict, 2, 7),
		{Key: "timeless", State: "idle"},
	}}, listed{fixed: fixed{name: "backup"}, keys: []controller.KeySummary{queued("nightly", "paused", 4)}})
	for query, want := range map[string]string{
		"":                              "default/shop prod/<b> prod/shop nightly default/Blog timeless 6 of 6",
		"?sort=attempts":                "prod/<b> prod/shop nightly default/Blog default/shop timeless 6 of 6",
		"?sort=reason":                  "prod/<b> prod/shop default/shop nightly default/Blog timeless 6 of 6",
		"?sort=key":                     "default/Blog default/shop nightly prod/<b> prod/shop timeless 6 of 6",
		"?q=SHOP":                       "default/shop prod/shop 2 of 6",
		"?q=blog":                       "default/Blog 1 of 6",
		"?reason=any":                   "prod/<b> prod/shop 2 of 6",
		"?reason=forbidden":             "prod/shop 1 of 6",
		"?state=ready":                  "default/Blog 1 of 6",
		"?controller=backup":            "nightly 1 of 1",
		"?controller=backup&state=held": "0 of 1",
	} {
		w := get(t, h, "GET", "/"+query)
		var got struct {
			Keys       []struct{ Key string }
			Total, All int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || strings.Contains(w.Body.String(), "<b>") {
			t.Fatalf("%q: %v in %s", query, err, w.Body)
		}
		text := ""
		for _, k := range got.Keys {
			text += k.Key + " "
		}
		text += fmt.Sprintf("%d of %d", got.Total, got.All)
		testkit.Equal(t, text, want, query)
	}
	for query, want := range map[string]string{
		"?sort=size": "sort=size is invalid; use age, attempts, duration, reason or key", "?controller=web": `no controller is named "web"; there are ["backup" "website"]`,
		"?limit=1": `the parameter "limit" is unknown; use controller, state, reason, q, sort`,
	} {
		if w := get(t, h, "GET", "/"+query); w.Code < 400 || w.Body.String() != want+"\n" {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	}
}

// TestKeys_AtMost1000: of many keys the first ones come, and long errors are cut.
func TestKeys_AtMost1000(t *testing.T) {
	var all []controller.KeySummary
	for i := range 10_000 {
		all = append(all, queued(fmt.Sprintf("key-%05d", (i*7919)%10_000), "waiting", (i*7919)%10_000))
	}
	all[17].Failure = &controller.Failure{Err: strings.Repeat("é", 10_000), At: began().Add(-time.Hour)}
	w := get(t, debug.Keys(listed{fixed: fixed{name: "website"}, keys: all}), "GET", "/")
	var got struct {
		Keys  []struct{ Key, Error string }
		Total int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || len(got.Keys) != 1000 || got.Total != 10_000 {
		t.Fatalf("%v: %d, %d of %d", err, w.Code, len(got.Keys), got.Total)
	}
	if e := got.Keys[0].Error; len(e) > 310 || !strings.HasSuffix(e, "é…") {
		t.Errorf("the oldest key has the error %q", e)
	}
	testkit.Equal(t, got.Keys[1].Key, "key-00000")
	testkit.Equal(t, got.Keys[999].Key, "key-00998")
}
