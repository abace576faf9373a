// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// ambiguous returns why a request is not reviewed, or "". A handler could mistake its method or path
// for another one than the review is about.
func ambiguous(r *http.Request) string {
	path := r.URL.Path
	switch {
	case r.Method != strings.ToUpper(r.Method):
		return "send the method in upper case"
	case !strings.HasPrefix(path, "/"):
		return "send a path that begins with /"
	case strings.Contains(path, "%"):
		return "send a path that is encoded once: without % after decoding"
	case strings.Contains(path, `\`):
		return `send a path without \`
	case !utf8.ValidString(path) || strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "send a path of UTF-8 without control characters"
	}
	for segment := range strings.SplitSeq(path, "/") {
		name, _, _ := strings.Cut(segment, ";") // some servers cut parameters off, and Windows spaces
		if name = strings.TrimRight(name, " "); name == "." || name == ".." {
			return "send a path without . and .."
		}
	}
	return ""
}
