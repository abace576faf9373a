// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"runtime"
	"strings"
)

// long is the number of bytes from which a value has lines of its own.
const long = 80

// message describes a failed check. Its caller is the check, and a test has called that.
func message(name []any, got any, wanted string, want any) string {
	is, goal := show(got), show(want)
	if len(is)+len(goal) <= long {
		return fmt.Sprintf("%s%s is %s, %s%s", prefix(name), expression(), is, wanted, goal)
	}
	return fmt.Sprintf("%s%s is\n%s\n%s\n%s", prefix(name), expression(), lines(got, is), strings.TrimSpace(wanted), lines(want, goal))
}

// times describes a wrong number of a part. The text, perhaps a whole log, comes last.
func times(name []any, text, part string, n, want int) string {
	return fmt.Sprintf("%s%s has %q %d times, want %d:\n%s", prefix(name), expression(), part, n, want, text)
}

func prefix(name []any) string {
	var b strings.Builder
	for _, n := range name {
		fmt.Fprintf(&b, "%+v: ", n)
	}
	return b.String()
}

// show quotes texts: an empty one, or a space at the end, must be visible.
func show(v any) string {
	switch v.(type) {
	case error, []byte, []string:
		return fmt.Sprintf("%q", v)
	}
	if reflect.ValueOf(v).Kind() == reflect.String {
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}

// lines shows a text of several lines as it is, and otherwise what show has returned.
func lines(v any, shown string) string {
	text := fmt.Sprintf("%s", v)
	if strings.HasPrefix(shown, `"`) && strings.Contains(strings.TrimSpace(text), "\n") {
		return text
	}
	return shown
}

// expression returns the source of the second argument of the check, as gotest.tools does. With
// go test -trimpath, the name of the source file is not a path, and there is no source.
func expression() string {
	pc := make([]uintptr, 3)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	check, _ := frames.Next()
	caller, _ := frames.Next()
	source, err := os.ReadFile(caller.File)
	if err != nil {
		return "it"
	}
	files := token.NewFileSet()
	f, _ := parser.ParseFile(files, caller.File, source, parser.SkipObjectResolution)
	text := "it"
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 || files.Position(call.Pos()).Line > caller.Line || files.Position(call.End()).Line < caller.Line {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && is(check.Function, s.Sel.Name) {
			arg := call.Args[1]
			text = string(source[files.Position(arg.Pos()).Offset:files.Position(arg.End()).Offset])
		}
		return true
	})
	return strings.Join(strings.Fields(text), " ")
}

// is reports whether the function, perhaps generic, has the name.
func is(function, name string) bool {
	function = strings.TrimSuffix(function, "[...]")
	return function[strings.LastIndex(function, ".")+1:] == name
}
