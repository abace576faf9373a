// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what users of a contestant observed.
type Result struct {
	Contestant string
	Rotations  int // new CAs in the bundle
	Kills      int
	Requests   int            // updates and reads
	Refused    int            // because of a certificate
	Failed     int            // for another reason
	Classes    map[string]int // requests without success, by their error
	Gap        time.Duration  // longest time without a read, or an update, that succeeded
	Slowest    time.Duration
	Took       time.Duration
	Errors     []string // the first 20
}

// classes returns the errors of a webhook call, the most precise first. Errors
// of x509 and tls are refusals.
func classes() []struct{ text, class string } {
	return []struct{ text, class string }{
		{"certificate signed by unknown authority", "x509: certificate signed by unknown authority"},
		{"certificate has expired or is not yet valid", "x509: certificate has expired or is not yet valid"},
		{"x509:", "x509: other"},
		{"tls:", "tls: the server has no usable certificate"},
		{"connection refused", "connection refused"},
		{"connection reset", "connection reset"},
		{"EOF", "connection closed before the answer"},
		{"deadline exceeded", "timeout"},
		{"timeout", "timeout"},
	}
}

// classOf returns the class of an error.
func classOf(err error) string {
	for _, each := range classes() {
		if strings.Contains(err.Error(), each.text) {
			return each.class
		}
	}
	return "other"
}

// add counts a request that failed.
func (r *Result) add(at time.Time, err error) {
	class := classOf(err)
	r.Classes[class]++
	if strings.HasPrefix(class, "x509:") || strings.HasPrefix(class, "tls:") {
		r.Refused++
	} else {
		r.Failed++
	}
	if len(r.Errors) < 20 {
		r.Errors = append(r.Errors, at.UTC().Format("15:04:05.000 ")+err.Error())
	}
}

// Table returns results as Markdown.
func Table(results ...Result) string {
	var text strings.Builder
	text.WriteString("| certificates | rotations | kills | requests | refused | failed | longest gap |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %d | %s |\n", r.Contestant, r.Rotations, r.Kills, r.Requests, r.Refused, r.Failed, r.Gap.Round(time.Millisecond))
	}
	return text.String()
}

// ErrorTable returns the errors of results as Markdown, or "" if there are none.
func ErrorTable(results ...Result) string {
	var text strings.Builder
	for _, r := range results {
		for _, class := range slices.Sorted(maps.Keys(r.Classes)) {
			fmt.Fprintf(&text, "| %s | %s | %d |\n", r.Contestant, class, r.Classes[class])
		}
	}
	if text.Len() == 0 {
		return ""
	}
	return "| certificates | error of the API server's call | requests |\n|---|---|---|\n" + text.String()
}
