// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/util/duration"
)

// clean returns text as one line without control characters, and without the invisible ones that
// change how a terminal shows the rest. Line breaks and tabs become spaces.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case hidden(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

func hidden(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// table collects rows, and aligns their cells.
type table struct{ rows [][]string }

func (t *table) row(cells ...any) {
	row := make([]string, 0, len(cells))
	for _, c := range cells {
		text := clean(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		row = append(row, text)
	}
	t.rows = append(t.rows, row)
}

// print writes the rows; the first one is the header.
func (p printer) print(t *table) {
	w := tabwriter.NewWriter(p.to, 0, 0, 3, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // as any print to a terminal
}

// json writes an indented value. Control characters occur only in strings, and become escapes.
func (p printer) json(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(bytes.ToValidUTF8(text, []byte("\uFFFD"))) {
		if r == '\n' || !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	_, err = fmt.Fprintln(p.to, b.String())
	return err
}

// ago returns the time since then in the form of kubectl, or "" for no time.
func ago(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}
