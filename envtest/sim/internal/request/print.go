// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// TableOf builds the Table form. Only the first table of a watch has column definitions.
func (r *Request) TableOf(items []*unstructured.Unstructured, metadata any, headers bool) (map[string]any, error) {
	version := r.Form.Convert.GroupVersion().String()
	result := map[string]any{"kind": wire.AsTable, "apiVersion": version, "metadata": metadata, "columnDefinitions": nil}
	columns := r.table.TableColumns()
	if headers {
		definitions := []metav1.TableColumnDefinition{}
		for _, c := range columns {
			definitions = append(definitions, c.TableColumnDefinition)
		}
		result["columnDefinitions"] = definitions
	}
	rows := []any{}
	for _, o := range items {
		o, err := r.table.Present(o)
		if err != nil {
			return nil, err
		}
		cells := []any{}
		for _, c := range columns {
			cells = append(cells, c.Cell(o))
		}
		var object any
		switch include := r.Query.Get("includeObject"); include {
		case "Object":
			object = o.Object
		case "None":
		case "", "Metadata":
			object = map[string]any{"kind": wire.PartialMetadata, "apiVersion": version, "metadata": o.Object["metadata"]}
		default:
			return nil, fmt.Errorf("Unable to convert to Table as requested: includeObject: Invalid value: %q: "+
				"must be 'Metadata', 'Object', 'None', or empty", include)
		}
		rows = append(rows, map[string]any{"cells": cells, "object": object})
	}
	result["rows"] = rows
	return result, nil
}

// AnswerTable answers with objects in the Table form.
func (r *Request) AnswerTable(code int, items []*unstructured.Unstructured, metadata any) (*http.Response, error) {
	t, err := r.TableOf(items, metadata, true)
	if err != nil {
		return r.Fail(http.StatusBadRequest, err.Error())
	}
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return r.AnswerJSON(code, data)
}
