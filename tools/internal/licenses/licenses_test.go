// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package licenses

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

// TestTree_LinksAllowedLicenses reads the licenses of all that the users of a release link.
func TestTree_LinksAllowedLicenses(t *testing.T) {
	for _, dir := range modules.Published() {
		linked, err := Linked(t.Context(), filepath.Join("../../..", dir), modules.Workspace(dir))
		if err != nil {
			t.Fatal(err)
		}
		if len(linked) < 3 {
			t.Errorf("%s links %d modules, want at least 3", dir, len(linked))
		}
		for _, p := range Check(linked) {
			t.Errorf("%s links %s", dir, p)
		}
	}
}

func TestCheck(t *testing.T) {
	ours, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const isc = `Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the above copyright notice and this permission notice appear in all copies.
THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`
	zero := strings.Replace(isc, ", provided that the above copyright notice and this permission notice appear in all copies", "", 1)
	for name, c := range map[string]struct {
		file, text string
		want       string // part of the problem; "" for none
	}{
		"Apache":                  {"LICENSE", string(ours), ""},
		"ISC in another spelling": {"licence.md", isc, ""},
		"a license of documents":  {"LICENSE.docs", isc, "no file has its license"},
		"one that is not listed":  {"COPYING", zero, "has the license 0BSD"},
		"a text of our own":       {"LICENSE", "You may use this on Sundays.", "the text of LICENSE is of no license"},
		"an allowed one with more": {"LICENSE", isc + strings.Repeat("You may use this on Sundays, but only if it does not rain. ", 40),
			"the text of LICENSE is of no license"},
		"no file": {"README.md", "MIT", "no file has its license"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(Check([]Module{{"example.com/m", "v1.0.0", dir}}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
