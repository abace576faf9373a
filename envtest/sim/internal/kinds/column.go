// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// column is a column of the Table form.
type column struct {
	metav1.TableColumnDefinition
	Cell func(*unstructured.Unstructured) any
}

// swagger describes the fields that every table shows.
var swagger = metav1.ObjectMeta{}.SwaggerDoc()

var (
	nameColumn = column{
		metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: swagger["name"]},
		func(o *unstructured.Unstructured) any { return o.GetName() },
	}
	ageColumn = column{
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: swagger["creationTimestamp"]},
		func(o *unstructured.Unstructured) any { return age(o.GetCreationTimestamp()) },
	}
)

// age is how long ago a time was, as kubectl shows it.
func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// TableColumns returns the columns of a kind: Name and Age, with the CRD's columns in between.
func (d Definition) TableColumns() []column {
	if d.BuiltIn {
		return []column{nameColumn, ageColumn}
	}
	all := []column{nameColumn}
	for _, c := range d.columns {
		all = append(all, c.column())
	}
	if len(all) == 1 {
		aged := ageColumn
		aged.Type = "date"
		aged.Cell = func(o *unstructured.Unstructured) any {
			if created := o.GetCreationTimestamp(); !created.IsZero() {
				return age(created)
			}
			return nil
		}
		all = append(all, aged)
	}
	return all
}

// printerColumn is an entry of a CRD's additionalPrinterColumns.
type printerColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format"`
	Description string `json:"description"`
	Priority    int32  `json:"priority"`
	JSONPath    string `json:"jsonPath"`
}

func (c printerColumn) column() column {
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	bad := path.Parse("{" + c.JSONPath + "}")
	description := c.Description
	if description == "" {
		description = fmt.Sprintf("Custom resource definition column (in JSONPath format): %s", c.JSONPath)
	}
	return column{
		metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority},
		func(o *unstructured.Unstructured) any {
			if bad != nil {
				return nil
			}
			found, err := path.FindResults(o.Object)
			if err != nil || len(found) == 0 || len(found[0]) == 0 {
				return nil
			}
			return c.format(found[0][0].Interface(), path, o)
		},
	}
}

// format returns a cell's value in the column's type.
func (c printerColumn) format(value any, path *jsonpath.JSONPath, o *unstructured.Unstructured) any {
	switch c.Type {
	case "integer":
		if n, ok := value.(int64); ok {
			return n
		}
		if f, ok := value.(float64); ok {
			return int64(f)
		}
	case "number", "boolean":
		return value
	case "date":
		text, _ := value.(string)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return "<invalid>"
		}
		return age(metav1.NewTime(at))
	case "string":
		var b strings.Builder
		if err := path.Execute(&b, o.Object); err == nil {
			return b.String()
		}
	}
	return nil
}
