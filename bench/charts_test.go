// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestReport_KeepsTheTablesThatItPrints writes two tables in pieces, as the parts do.
func TestReport_KeepsTheTablesThatItPrints(t *testing.T) {
	var printed bytes.Buffer
	r := newReport(&printed)
	r.begin("first")
	fmt.Fprint(r, "name\tti")
	fmt.Fprint(r, "me\t\nsetpoint")
	fmt.Fprintln(r, "\t1 s\t\t")
	fmt.Fprint(r, "client-go\t2 s\t\n\nother\t\nrow\t\n")
	r.begin("second")
	fmt.Fprint(r, "title\t\n")
	r.Flush()
	testkit.Contains(t, printed.String(), "setpoint   1 s")
	file := filepath.Join(t.TempDir(), "tables.json")
	testkit.NoError(t, r.write(file, ""))
	var saved report
	if text, err := os.ReadFile(file); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	want := []table{
		{"first", []string{"name", "time"}, [][]string{{"setpoint", "1 s"}, {"client-go", "2 s"}}},
		{"first", []string{"other"}, [][]string{{"row"}}},
		{"second", []string{"title"}, [][]string{}},
	}
	testkit.Equal(t, fmt.Sprint(saved.Tables), fmt.Sprint(want), "the file has the tables")
}

// TestCharts_ShowTheValues draws each chart from made-up figures.
func TestCharts_ShowTheValues(t *testing.T) {
	r := newReport(&bytes.Buffer{})
	for _, c := range charts {
		groups := c.groups
		if groups == nil {
			groups = []string{"a group"}
		}
		for _, g := range groups {
			for i, name := range slices.Backward(c.names) {
				r.keep(c.name, g+", more", name, []float64{float64(10 * i), 20, 3000})
			}
			r.keep(c.name, g, "a contestant that is left out", []float64{1})
		}
	}
	dir := t.TempDir()
	testkit.NoError(t, r.write("", dir))
	for _, c := range charts {
		text, err := os.ReadFile(filepath.Join(dir, "chart-"+c.name+".svg"))
		testkit.NoError(t, err)
		shown := html.UnescapeString(string(text))
		for _, want := range append([]string{c.title, ", more", "sans-serif", fmt.Sprintf(c.format, 20.0)}, c.names...) {
			testkit.Contains(t, shown, want, fmt.Sprintf("the chart %s does not contain %q", c.name, want))
		}
		testkit.NotContains(t, shown, "left out", fmt.Sprintf("the chart %s contains a contestant that is not of its names", c.name))
		if first, last := strings.Index(shown, c.names[0]), strings.Index(shown, c.names[len(c.names)-1]); first > last {
			t.Errorf("the chart %s has the contestants in another order than its names", c.name)
		}
	}
}

func TestCharts_OfAPartWithoutOne(t *testing.T) {
	r := newReport(&bytes.Buffer{})
	testkit.ErrorContains(t, r.write("", t.TempDir()), "-only packed")
}
