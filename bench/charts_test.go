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
	if want := "setpoint   1 s"; !strings.Contains(printed.String(), want) {
		t.Errorf("printed %q, want the line %q in it", printed.String(), want)
	}
	file := filepath.Join(t.TempDir(), "tables.json")
	if err := r.write(file, ""); err != nil {
		t.Fatal(err)
	}
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
	if got, want := fmt.Sprint(saved.Tables), fmt.Sprint(want); got != want {
		t.Errorf("the file has the tables %s, want %s", got, want)
	}
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
	if err := r.write("", dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range charts {
		text, err := os.ReadFile(filepath.Join(dir, "chart-"+c.name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		shown := html.UnescapeString(string(text))
		for _, want := range append([]string{c.title, ", more", "sans-serif", fmt.Sprintf(c.format, 20.0)}, c.names...) {
			if !strings.Contains(shown, want) {
				t.Errorf("the chart %s does not contain %q", c.name, want)
			}
		}
		if strings.Contains(shown, "left out") {
			t.Errorf("the chart %s contains a contestant that is not of its names", c.name)
		}
		if first, last := strings.Index(shown, c.names[0]), strings.Index(shown, c.names[len(c.names)-1]); first > last {
			t.Errorf("the chart %s has the contestants in another order than its names", c.name)
		}
	}
}

func TestCharts_OfAPartWithoutOne(t *testing.T) {
	r := newReport(&bytes.Buffer{})
	if err := r.write("", t.TempDir()); err == nil || !strings.Contains(err.Error(), "-only packed") {
		t.Errorf("the error is %v, want one that names the parts with a chart", err)
	}
}
