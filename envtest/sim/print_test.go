// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// lamps returns a server with a custom kind that has columns and a selectable field.
func lamps(t *testing.T) *sim.Server {
	t.Helper()
	var columns []any
	for _, column := range []string{"integer .spec.watts", "string .spec.color", "boolean .spec.on", "string .spec.none"} {
		format, path, _ := strings.Cut(column, " ")
		columns = append(columns, map[string]any{"name": column, "type": format, "jsonPath": path})
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "lamps.test.dev"},
		"spec": map[string]any{
			"group": "test.dev", "scope": "Namespaced", "names": map[string]any{"plural": "lamps", "kind": "Lamp"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
				"selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}},
				"schema":           map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	s := sim.New(t, runtime.NewScheme(), crd)
	kind := sim.Resource{Group: "test.dev", Version: "v1", Kind: "Lamp", Name: "lamps", Namespaced: true}
	for name, color := range map[string]string{"a": "red", "b": "blue"} {
		s.Put(kind, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": name},
			"spec":     map[string]any{"watts": int64(5), "color": color, "on": true},
		}})
	}
	return s
}

func readInto(t *testing.T, s *sim.Server, path, accept string, into any) int {
	t.Helper()
	code, _, body := exchange(t, s, http.MethodGet, path, "", "Accept", accept)
	testkit.NoError(t, json.Unmarshal([]byte(body), into), body)
	return code
}

func TestV1_TablesShowTheColumnsOfTheCRD(t *testing.T) {
	var table metav1.Table
	readInto(t, lamps(t), "/apis/test.dev/v1/lamps", "application/json;as=Table;g=meta.k8s.io;v=v1", &table)
	testkit.Len(t, table.ColumnDefinitions, 5)
	if len(table.Rows) != 2 {
		t.Fatalf("got %+v", table)
	}
	testkit.Equal(t, fmt.Sprint(table.Rows[0].Cells), "[a 5 red true <nil>]")
}

func TestV1_FieldSelectorsOfTheCRD(t *testing.T) {
	s := lamps(t)
	var list unstructured.UnstructuredList
	code := readInto(t, s, "/apis/test.dev/v1/lamps?fieldSelector=spec.color%3Dred", "", &list)
	testkit.Equal(t, code, http.StatusOK)
	testkit.Equal(t, namesIn(&list), "a ")
	var status metav1.Status
	code = readInto(t, s, "/apis/test.dev/v1/lamps?fieldSelector=spec.watts%3D5", "", &status)
	testkit.Equal(t, code, http.StatusBadRequest)
	testkit.Equal(t, status.Message, "field label not supported: spec.watts")
}

// TestEncodingsAreBounded: encodings of superseded and deleted objects are dropped.
