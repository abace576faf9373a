// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// lamps returns a server with a custom kind that has columns and a selectable field.
func lamps(t *testing.T) *Server {
	t.Helper()
	kind := Resource{Group: "test.dev", Version: "v1", Kind: "Lamp", Name: "lamps", Namespaced: true}
	s := NewServer(kind)
	table := s.tables[kind.gvr()]
	table.selectable = []string{".spec.color"}
	for _, column := range []string{"integer .spec.watts", "string .spec.color", "boolean .spec.on", "string .spec.none"} {
		c := printerColumn{Name: column}
		if _, err := fmt.Sscan(column, &c.Type, &c.JSONPath); err != nil {
			t.Fatal(err)
		}
		table.printed = append(table.printed, c)
	}
	for name, color := range map[string]string{"a": "red", "b": "blue"} {
		s.Put(kind, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": name},
			"spec":     map[string]any{"watts": int64(5), "color": color, "on": true},
		}})
	}
	return s
}

func read(t *testing.T, s *Server, path, accept string, into any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestV1_TablesShowTheColumnsOfTheCRD(t *testing.T) {
	var table metav1.Table
	read(t, lamps(t), "/apis/test.dev/v1/lamps", "application/json;as=Table;g=meta.k8s.io;v=v1", &table)
	if len(table.ColumnDefinitions) != 5 || len(table.Rows) != 2 {
		t.Fatalf("got %+v", table)
	}
	if got := fmt.Sprint(table.Rows[0].Cells); got != "[a 5 red true <nil>]" {
		t.Errorf("the cells are %s", got)
	}
}

func TestV1_FieldSelectorsOfTheCRD(t *testing.T) {
	s := lamps(t)
	var list unstructured.UnstructuredList
	if code := read(t, s, "/apis/test.dev/v1/lamps?fieldSelector=spec.color%3Dred", "", &list); code != http.StatusOK || len(list.Items) != 1 || list.Items[0].GetName() != "a" {
		t.Errorf("got %d %v", code, list.Items)
	}
	var status metav1.Status
	if code := read(t, s, "/apis/test.dev/v1/lamps?fieldSelector=spec.watts%3D5", "", &status); code != http.StatusBadRequest || status.Message != "field label not supported: spec.watts" {
		t.Errorf("got %d %s", code, status.Message)
	}
}

// TestEncodingsAreBounded: encodings of superseded and deleted objects are dropped.
func TestEncodingsAreBounded(t *testing.T) {
	s := lamps(t)
	for resource, table := range s.tables {
		for i := range 1000 {
			u := s.Object(table.Resource, "default", "a").DeepCopy()
			u.Object["spec"] = map[string]any{"watts": int64(i + 10)}
			s.Put(table.Resource, u)
			for j := range table.events {
				if j >= len(table.events)-sharedEvents {
					if _, err := table.encode(table.events[j].after, form{}, true); err != nil {
						t.Fatal(resource, err)
					}
				}
			}
		}
		if n := len(table.encodings); n > sharedEvents+len(table.objects) {
			t.Errorf("%d encodings", n)
		}
	}
}
