// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

type line struct {
	Kind, Scope, Storage, Phase, Err string
	Objects, Bytes, Decodes          int64
}

// TestInformers: the page shows the storage of each informer and what it costs, sorted.
func TestInformers(t *testing.T) {
	h := debug.Informers(
		hook.InformerState{Kind: "Pod.v1", Scope: "packed", Phase: hook.Synced, Objects: 3, Bytes: 600, Storage: "packed", Decodes: 5},
		hook.InformerState{Kind: "Pod.v1", Phase: hook.Synced, Objects: 3, Bytes: 900, Storage: "decoded"},
		hook.InformerState{Kind: "ConfigMap.v1", Scope: "cluster west", Phase: hook.Failing, Err: errors.New("no <route>"), Storage: "decoded"},
	)
	w := get(t, h, "GET", "/")
	var shown []line
	testkit.NoError(t, json.Unmarshal(w.Body.Bytes(), &shown), w.Body)
	want := []line{
		{Kind: "ConfigMap.v1", Scope: "cluster west", Phase: "failing", Err: "no <route>", Storage: "decoded"},
		{Kind: "Pod.v1", Phase: "synced", Objects: 3, Bytes: 900, Storage: "decoded"},
		{Kind: "Pod.v1", Scope: "packed", Phase: "synced", Objects: 3, Bytes: 600, Storage: "packed", Decodes: 5},
	}
	testkit.SlicesEqual(t, shown, want)
	testkit.Count(t, w.Body.String(), `"Err"`, 1)
	testkit.Equal(t, get(t, h, "GET", "/Pod.v1").Code, http.StatusNotFound)
	testkit.Equal(t, get(t, h, "POST", "/").Code, http.StatusMethodNotAllowed)
}

// TestInformers_None: a cache without informers is an empty list.
func TestInformers_None(t *testing.T) {
	testkit.Equal(t, get(t, debug.Informers(), "GET", "/").Body.String(), "[]\n")
}
