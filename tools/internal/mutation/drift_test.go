// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestApply_Drifted has code that was renamed or extended since its mutation was written.
func TestApply_Drifted(t *testing.T) {
	for _, test := range []struct {
		code   string // of function f
		change string
		want   string // the code with the change; empty: an error
	}{
		{"return max(r.Least, Duration(l))", "- max(s.least, duration(l))\n+ max(s.least, duration(l)) / 2", "return (max(r.Least, Duration(l)) / 2)"},
		{"return max(r.Least, Duration(l))", "- max(s.least, duration(l))\n+ duration(l)", "return Duration(l)"},
		{"return max(r.Least, Duration(l))", "- max(s.least, duration(l))\n+ max(s.most, duration(l))", "return max(r.most, Duration(l))"},
		{"if a.ok && b.has(c.d, 1) || late {\nreturn 1\n}", "- a.ok && b.has(c, 1)\n+ a.ok", "if a.ok || late {\nreturn 1\n}"},
		{"switch {\ncase Free(l), l == nil:\nreturn 1\n}", "- case free(l):\n+ default:", ""},
		{"switch {\ncase Free(l):\nreturn 1\n}", "- case free(l):\n+ default:", "switch {\ndefault:\nreturn 1\n}"},
		{"return w(pkg.Made(l, at))", "- w(made(l, at))\n+ made(l, at)", "return pkg.Made(l, at)"},
		{"s.at, s.first = r.late(s), r.first(a)", "- s.at, s.first = l.old(s), l.first(a)\n+ s.first = l.first(a)", "s.first = r.first(a)"},
		{"s.put(f(a, b), other)", "- s.table.set(f(a, b), other)\n+ f(a, b)", "f(a, b)"},
		{"p := obj.(*packed.Object)\nreturn p.Outline()", "- obj.(*packed.Object).Outline()\n+ nil", "p := obj.(*packed.Object)\nreturn nil"},
		{"return a.b[c] == nil && !late && ready(c)", "- s.by[c] == nil && !late && s.done.ready(c)\n+ s.by[c] == nil && !late", "return (a.b[c] == nil && !late)"},
		{"return a && b < c.d && e", "- a && b < c\n+ a && b < c && false", "return (a && b < c.d && false) && e"},
		{"return gone(a) || gone(b)", "- gone(c)\n+ true", ""},                  // two places
		{"use(gone)\nreturn missing.Len() > 0", "- gone.Len() > 0\n+ true", ""}, // another name
		{"return s.key.foreign", "- s.key.keep\n+ true", ""},
		{"l = lease.given(l, at)", "- l = held(l, late, at)\n+ l = nil", ""},
		// no call, though it shares most tokens
		{"p, ok := obj.(*packed.Object)\nreturn p", "- obj.(*packed.Object).Outline()\n+ nil", ""},
		{"q.addWith(key, now)\nq.add(key)", "- q.addWith(key, later)", "q.add(key)"},
		{"q.addWith(key, now)", "- q.addWith(key, later)\n+ q.addWith(key, later)\n+ q.done()", "q.addWith(key, now)\nq.done()"},
		{"return f(a, b+c)", "- f(a, b, c)\n+ f(a, b, d)", ""}, // the changed argument is gone
		{"return max(r.Least, Duration(l))", "- s.least + duration(l) - 7\n+ 0", ""},
		{"return a > b", "- a < b\n+ true", ""}, // too short to resemble anything
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "q", "a.go"), "package q\n\nfunc f() int {\n"+test.code+"\n}\n")
		entries, err := Parse("W1 q TestW1\nin: q f\n" + test.change + "\n")
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewCode(root).Apply(entries[0].Changes)
		got, _ := scan(m.Files["q/a.go"])
		want, _ := scan("package q\n\nfunc f() int {\n" + test.want + "\n}\n")
		if test.want == "" && err == nil || test.want != "" && !slices.Equal(got, want) {
			t.Errorf("%s\n%s\ngot  %v, %v\nwant %s", test.code, test.change, m.Files, err, strings.ReplaceAll(test.want, "\n", "; "))
		}
	}
}
