// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"compress/gzip"
	"flag"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var update = flag.Bool("update", false, "write builtinschema.yaml.gz")

// TestBuiltinSchema_IsClientGos compares the embedded schema with the one in the source of the
// client-go that this module requires.
func TestBuiltinSchema_IsClientGos(t *testing.T) {
	want := clientGosSchema(t)
	if *update {
		var zipped bytes.Buffer
		zip, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err == nil {
			_, err = io.WriteString(zip, want)
		}
		if err == nil {
			err = zip.Close()
		}
		if err == nil {
			err = os.WriteFile("builtinschema.yaml.gz", zipped.Bytes(), 0o644)
		}
		testkit.NoError(t, err)
		return
	}
	unzip := testkit.Must(gzip.NewReader(bytes.NewReader(builtinSchema)))
	got := testkit.Must(io.ReadAll(unzip))
	if string(got) != want {
		t.Error("builtinschema.yaml.gz is not client-go's schema; run 'go test ./envtest/sim -run TestBuiltinSchema -update'")
	}
}

// clientGosSchema returns the only long string in the internal package of the apply configurations.
func clientGosSchema(t *testing.T) string {
	t.Helper()
	dir := testkit.Must(exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/client-go/applyconfigurations/internal").Output())
	file, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "internal.go"), nil, parser.SkipObjectResolution)
	testkit.NoError(t, err)
	schema := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == gotoken.STRING && len(l.Value) > len(schema) {
			schema, err = strconv.Unquote(l.Value)
		}
		return err == nil
	})
	if err != nil || !strings.HasPrefix(schema, "types:") {
		t.Fatalf("no schema in %s: %v", dir, err)
	}
	return schema
}
