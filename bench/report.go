// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
)

// report prints the tables of a run with aligned columns, and keeps them for -json and -charts.
type report struct {
	Go         string            `json:"go"`
	Platform   string            `json:"platform"`
	Processors int               `json:"processors"`
	Arguments  []string          `json:"arguments"`
	Modules    map[string]string `json:"modules"` // versions of the contestants
	LoadBefore string            `json:"loadBefore,omitempty"`
	LoadAfter  string            `json:"loadAfter,omitempty"`
	Tables     []table           `json:"tables"`
	Figures    []figure          `json:"figures,omitempty"`

	aligned *tabwriter.Writer
	part    string
	line    []byte // of a table, not yet complete
	open    bool   // the next line is a row of the last table
}

// table is one table as printed. Cells are text with units.
type table struct {
	Part    string     `json:"part"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// figure has the values of one contestant: one for each round, change or other repetition.
type figure struct {
	Chart  string    `json:"chart"`
	Group  string    `json:"group"`
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

func newReport(out io.Writer) *report {
	r := &report{
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.GOMAXPROCS(0),
		Arguments: os.Args[1:], Modules: map[string]string{}, LoadBefore: load1(),
		aligned: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/client-go" || m.Path == "sigs.k8s.io/controller-runtime" {
				r.Modules[m.Path] = m.Version
			}
		}
	}
	return r
}

// load1 returns the load average of the last minute, or "".
func load1() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// begin starts the tables of a part of the program.
func (r *report) begin(part string) { r.part, r.open = part, false }

// Write takes text of a table: cells end with a tab, and an empty line ends the table.
func (r *report) Write(p []byte) (int, error) {
	r.line = append(r.line, p...)
	for {
		line, rest, complete := bytes.Cut(r.line, []byte("\n"))
		if !complete {
			return r.aligned.Write(p)
		}
		r.add(string(line))
		r.line = bytes.Clone(rest)
	}
}

func (r *report) add(line string) {
	cells := strings.Split(strings.TrimRight(line, "\t"), "\t")
	switch {
	case strings.TrimSpace(line) == "":
		r.open = false
	case !r.open:
		r.Tables = append(r.Tables, table{Part: r.part, Columns: cells, Rows: [][]string{}})
		r.open = true
	default:
		last := &r.Tables[len(r.Tables)-1]
		last.Rows = append(last.Rows, cells)
	}
}

// Flush prints the lines so far.
func (r *report) Flush() { r.aligned.Flush() }

// keep records the values behind a row of a table. chart is the name of a chart, or of none.
func (r *report) keep(chart, group, name string, values []float64) {
	r.Figures = append(r.Figures, figure{chart, group, name, slices.Clone(values)})
}

// save writes the report as JSON.
func (r *report) save(file string) error {
	r.LoadAfter = load1()
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
