// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package setpoint_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const modulePath = "github.com/setpoint-dev/setpoint"

// mayImport lists the packages of this module that each package of the library may import. An
// internal package shares the row of the folder that it belongs to. Examples, tests and other
// modules may import everything.
var mayImport = map[string][]string{
	".":                        {},
	"hook":                     {},
	"why":                      {},
	"rbac":                     {},
	"workqueue":                {"hook", "internal/slab"},
	"handler":                  {"workqueue", "rbac", "internal/argument", "internal/object", "internal/traceparent"},
	"cache":                    {"hook", "why", "rbac", "internal/argument", "internal/builtin", "cache/internal/coalesce", "internal/consistency", "internal/contextkey", "cache/internal/listwatch", "internal/object", "internal/packed", "internal/run", "internal/storage", "internal/wire"},
	"cache/internal/coalesce":  {},
	"cache/internal/listwatch": {"hook", "internal/object", "internal/run", "internal/storage", "internal/wire"},
	"cache/factory":            {"cache", "client", "internal/builtin"},
	"ledger":                   {"internal/contextkey"},
	"term":                     {"hook", "ledger", "internal/fence"},
	"client":                   {"hook", "rbac", "internal/argument", "internal/builtin", "internal/journal", "internal/logging", "internal/object", "internal/transport", "internal/traceparent"},
	"finalizer":                {"client", "internal/argument", "internal/object"},
	"owner":                    {"internal/argument", "internal/object"},
	"children":                 {"cache", "client", "controller", "finalizer", "handler", "source", "internal/argument", "internal/consistency", "internal/contextkey", "internal/object", "internal/run"},
	"status":                   {"cache", "client", "controller", "internal/argument", "internal/object"},
	"source":                   {"handler", "workqueue", "cache", "hook", "why", "rbac", "internal/argument", "internal/run", "internal/storage"},
	"controller":               {"source", "handler", "workqueue", "cache", "ledger", "term", "hook", "why", "rbac", "internal/argument", "internal/consistency", "internal/contextkey", "internal/fence", "internal/journal", "internal/logging", "internal/run", "internal/slab", "internal/traceparent"},
	"leaderelection":           {"term", "hook", "rbac", "internal/connection", "internal/fence", "internal/lease", "internal/logging", "internal/run", "internal/stamp"},
	"shard":                    {"client", "events", "leaderelection", "term", "hook", "rbac", "internal/fence", "internal/lease", "internal/logging", "internal/owned", "internal/run", "shard/internal/slots", "internal/stamp", "internal/transport"},
	"shard/internal/slots":     {},
	"shard/shardtest":          {"controller", "shard"},
	"events":                   {"cache", "client", "controller", "hook", "ledger", "term", "rbac", "internal/argument", "internal/fence", "internal/logging", "internal/object", "internal/run"},
	"manager":                  {"controller", "cache", "client", "term", "hook", "why", "rbac", "internal/argument", "internal/logging", "internal/run"},
	"server":                   {"client", "manager", "term", "rbac", "internal/argument", "internal/logging", "internal/run"},
	"webhook":                  {"cache", "client", "events", "hook", "manager", "server", "term", "rbac", "webhook/internal/certs", "internal/argument", "internal/logging", "internal/run"},
	"webhook/internal/certs":   {"client", "events", "hook", "manager", "term", "internal/logging", "internal/run"},
	"webhook/webhooktest":      {"client", "envtest", "webhook"},
	"metrics":                  {"cache", "hook"},
	"debug":                    {"controller", "hook", "manager", "server", "why"},
	"envtest":                  {"internal/manifests"},
	"envtest/cluster":          {"envtest"},
	"envtest/fault":            {"internal/apipath"},
	"sweep":                    {"client", "envtest", "envtest/fault", "envtest/sim", "internal/apipath", "internal/journal", "internal/manifests"},
	"envtest/sim":              {"envtest/fault", "envtest/sim/internal/admission", "envtest/sim/internal/bubble", "envtest/sim/internal/codec", "envtest/sim/internal/controllers", "envtest/sim/internal/conversion", "envtest/sim/internal/crdschema", "envtest/sim/internal/fieldmanager", "envtest/sim/internal/kinds", "envtest/sim/internal/load", "envtest/sim/internal/request", "envtest/sim/internal/rules", "envtest/sim/internal/store", "envtest/sim/internal/verbs", "envtest/sim/internal/webhook"},

	"envtest/sim/conformance":           {}, // it has tests only
	"envtest/sim/internal/admission":    {"envtest/sim/internal/codec", "envtest/sim/internal/conversion", "envtest/sim/internal/kinds", "envtest/sim/internal/request", "envtest/sim/internal/rules", "envtest/sim/internal/store", "envtest/sim/internal/webhook"},
	"envtest/sim/internal/bubble":       {},
	"envtest/sim/internal/codec":        {"envtest/sim/internal/crdschema", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/openapi", "envtest/sim/internal/rules"},
	"envtest/sim/internal/controllers":  {"envtest/sim/internal/fieldmanager", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/request", "envtest/sim/internal/rules", "envtest/sim/internal/store"},
	"envtest/sim/internal/conversion":   {"envtest/sim/internal/crdschema", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/request", "envtest/sim/internal/store", "envtest/sim/internal/webhook"},
	"envtest/sim/internal/crdschema":    {},
	"envtest/sim/internal/fieldmanager": {"envtest/sim/internal/codec", "envtest/sim/internal/conversion", "envtest/sim/internal/managed", "envtest/sim/internal/request", "envtest/sim/internal/store", "envtest/sim/internal/webhook"},
	"envtest/sim/internal/jsonvalue":    {},
	"envtest/sim/internal/kinds":        {"envtest/sim/internal/crdschema", "envtest/sim/internal/jsonvalue"},
	"envtest/sim/internal/load":         {"envtest/sim/internal/controllers", "envtest/sim/internal/kinds", "envtest/sim/internal/rules", "envtest/sim/internal/store"},
	"envtest/sim/internal/managed":      {"envtest/sim/internal/jsonvalue"},
	"envtest/sim/internal/openapi":      {"envtest/sim/internal/crdschema", "envtest/sim/internal/kinds", "envtest/sim/internal/wire"},
	"envtest/sim/internal/request":      {"envtest/sim/internal/codec", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/rules", "envtest/sim/internal/store", "envtest/sim/internal/webhook", "envtest/sim/internal/wire", "internal/apipath"},
	"envtest/sim/internal/rules":        {"envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/managed"},
	"envtest/sim/internal/store":        {"envtest/sim/internal/codec", "envtest/sim/internal/crdschema", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/rules", "envtest/sim/internal/wire"},
	"envtest/sim/internal/verbs":        {"envtest/sim/internal/admission", "envtest/sim/internal/codec", "envtest/sim/internal/controllers", "envtest/sim/internal/conversion", "envtest/sim/internal/fieldmanager", "envtest/sim/internal/jsonvalue", "envtest/sim/internal/kinds", "envtest/sim/internal/managed", "envtest/sim/internal/openapi", "envtest/sim/internal/request", "envtest/sim/internal/rules", "envtest/sim/internal/store", "envtest/sim/internal/webhook", "envtest/sim/internal/wire"},
	"envtest/sim/internal/webhook":      {"envtest/sim/internal/bubble"},
	"envtest/sim/internal/wire":         {"envtest/sim/internal/jsonvalue"},

	"internal/apipath":     {},
	"internal/argument":    {},
	"internal/builtin":     {},
	"internal/manifests":   {},
	"internal/connection":  {"internal/run"},
	"internal/contextkey":  {},
	"internal/journal":     {"ledger", "internal/contextkey"},
	"internal/consistency": {"hook", "internal/object"},
	"internal/lease":       {},
	"internal/fence":       {"ledger"},
	"internal/owned":       {"term", "internal/fence"},
	"internal/slab":        {},
	"internal/stamp":       {"internal/fence"},
	"internal/logging":     {},
	"internal/object":      {},
	"internal/packed":      {"internal/object", "internal/storage", "internal/wire"},
	"internal/run":         {},
	"internal/storage":     {"internal/object", "internal/wire"},
	"internal/testkit":     {},
	"internal/traceparent": {},
	"internal/wire":        {},
	"internal/transport":   {"hook", "ledger", "term", "rbac", "internal/apipath", "internal/connection", "internal/fence", "internal/journal", "internal/wire"},

	"internal/testkit/storages": {"cache"},
}

// onlyIn restricts imports of production code to folders, with the reason. A name that ends in a
// slash includes everything below it.
var onlyIn = map[string]struct {
	folders []string
	why     string
}{
	"github.com/prometheus/":            {[]string{"metrics"}, "programs without package metrics should not link Prometheus"},
	"github.com/onsi/":                  {nil, "it is for tests"},
	"go.uber.org/goleak":                {nil, "it is for tests"},
	"testing":                           {[]string{"internal/testkit", "internal/testkit/storages", "sweep", "webhook/webhooktest"}, "it is for tests"},
	"flag":                              {[]string{"envtest", "internal/testkit/storages"}, "flags belong to the program that embeds us (M5)"},
	"k8s.io/apiserver/":                 {nil, "a library must not bring the API server to its users"},
	"sigs.k8s.io/controller-runtime/":   {nil, "comparisons with it live in a module of their own"},
	"k8s.io/kubernetes/":                {nil, "the control plane is a program that envtest builds, not a library"},
	"k8s.io/apiextensions-apiserver/":   {nil, "only its names are needed, and the dynamic client has them"},
	"sigs.k8s.io/controller-tools/":     {nil, "it is pinned in tools/"},
	"github.com/golangci/golangci-lint": {nil, "it is pinned in tools/lint"},
}

func TestImports(t *testing.T) {
	used := map[string][]string{}
	for _, p := range library(t) {
		used[p.row()] = append(used[p.row()], p.row())
		allowed, ok := mayImport[p.row()]
		testkit.Equal(t, ok, true, fmt.Sprintf("%s is a new package", p.dir), "give it a row in mayImport (layout_test.go) and in the README's table, or move its code")
		for _, f := range p.production() {
			for _, imp := range f.imports() {
				name, ours := strings.CutPrefix(imp, modulePath+"/")
				used[p.row()] = append(used[p.row()], row(name))
				if ours && row(name) != p.row() && !slices.Contains(allowed, row(name)) {
					t.Errorf("%s imports %s: the table of who may import whom (mayImport in layout_test.go) does not allow it; pass an interface or a func instead", f.path, name)
				}
				for forbidden, rule := range onlyIn {
					if matches(imp, forbidden) && !slices.Contains(rule.folders, p.row()) && p.name() != "main" {
						t.Errorf("%s imports %s: %s", f.path, imp, rule.why)
					}
				}
			}
		}
	}
	for p, allowed := range mayImport {
		for _, name := range append(slices.Clone(allowed), p) {
			if !slices.Contains(used[p], name) {
				t.Errorf("mayImport in layout_test.go: %s does not import %s, or there is no such package; remove the entry", p, name)
			}
		}
	}
}

func TestRequirements(t *testing.T) {
	for _, line := range strings.Split(read(t, "go.mod"), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "require "))
		for _, forbidden := range []string{"k8s.io/apiserver", "sigs.k8s.io/controller-runtime"} {
			if strings.HasPrefix(line, forbidden+" ") {
				t.Errorf("go.mod requires %s: every user of the library would inherit it; find the reason with 'go mod why'", line)
			}
		}
		if strings.HasPrefix(line, "replace ") {
			t.Errorf("go.mod has %q: the users of a library do not see its replace lines; remove it", line)
		}
	}
}

func TestNoMiscFolders(t *testing.T) {
	for _, p := range packages(t) {
		for _, part := range strings.Split(p.dir, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "pkg"}, part) {
				t.Errorf("%s: the folder name %s does not describe its contents; name it after its purpose", p.dir, part)
			}
		}
		if strings.HasSuffix(p.dir, "internal/controller") {
			t.Errorf("%s: package controller has no hidden twin; put the code there", p.dir)
		}
	}
}

func TestPackageDoc(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		for _, f := range p.production() {
			if f.ast.Doc != nil && !ast.IsGenerated(f.ast) {
				docs = append(docs, f.path)
			}
		}
		if len(docs) > 1 {
			t.Errorf("%s has several package comments, in %s: keep one", p.dir, strings.Join(docs, ", "))
		}
		if len(docs) == 0 && !p.generated() && !p.onlyTests() {
			t.Errorf("%s has no package comment: describe its purpose in doc.go", p.dir)
		}
	}
}

func TestGoleak(t *testing.T) {
	for _, p := range packages(t) {
		inExample := strings.HasPrefix(p.dir, "examples/")
		if p.module != "." && p.module != "e2e" && !inExample {
			continue // tools, which end with their process
		}
		code, tested, leakTested := false, false, false
		for _, f := range p.files {
			code = code || len(f.funcs()) > 0
			tested = tested || f.test()
			leakTested = leakTested || f.test() && (f.funcs()["TestMain"] != nil && len(f.calls("goleak")) > 0 ||
				inExample && len(f.calls("goleak", "VerifyNone")) > 0) // a Ginkgo suite is one test
		}
		switch {
		case code && !tested && !inExample && p.name() != "main":
			t.Errorf("%s has no test", p.dir)
		case tested && !leakTested:
			t.Errorf("%s: no test file has func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }; add it", p.dir)
		}
	}
}

func TestGoleakIgnoresHaveReasons(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, call := range f.calls("goleak", "IgnoreTopFunction", "IgnoreAnyFunction", "IgnoreAnyContainingPkg") {
				line := f.line(call)
				named := strings.Contains(f.textOf(line), ":= goleak.") // the name is the reason
				if !named && !f.commentOn(line) && !f.commentOn(line-1) {
					t.Errorf("%s:%d leaves a goroutine out of the leak check: give the reason in a comment on that line or above", f.path, line)
				}
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	const header = "// SPDX-FileCopyrightText: The Setpoint Authors\n// SPDX-License-Identifier: Apache-2.0\n"
	for _, p := range packages(t) {
		if p.module == "examples/template" {
			continue // a copy belongs to its user
		}
		for _, f := range p.files {
			if !strings.Contains(f.head(), header) && !ast.IsGenerated(f.ast) {
				t.Errorf("%s does not start with the two lines\n%s", f.path, header)
			}
		}
	}
}

func TestNothingBehindTheHostsBack(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() == "main" {
			continue
		}
		for _, f := range p.production() {
			if f.funcs()["init"] != nil && !ast.IsGenerated(f.ast) {
				t.Errorf("%s has an init function: what it does must happen where the user asks for it (M5)", f.path)
			}
			exits := append(f.calls("os", "Exit"), f.calls("log", "Fatal", "Fatalf", "Fatalln")...)
			for _, call := range exits {
				t.Errorf("%s:%d ends the process: return an error, only package main may decide that (M5)", f.path, f.line(call))
			}
		}
	}
}

func TestNoContextInStruct(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.production() {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				s, ok := n.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range s.Fields.List {
					if len(field.Names) == 0 && (f.path == "controller/context.go" || f.path == "crbridge/basecontext.go") || f.path == "hook/controller.go" {
						continue // contexts themselves; events, which are the arguments of a call
					}
					if name, ok := selected(field.Type, "context"); ok && name == "Context" {
						t.Errorf("%s:%d keeps a context in a struct: pass it to the method that needs it", f.path, f.line(field))
					}
				}
				return true
			})
		}
	}
}

func TestNoSleep(t *testing.T) {
	for _, p := range packages(t) {
		if p.module == "bench" {
			continue // measures real time
		}
		for _, f := range p.files {
			if (f.test() || p.dir == "internal/testkit") && slices.Contains(f.imports(), "testing/synctest") {
				continue // in a bubble, sleeping takes no time and ends at a known moment
			}
			for _, call := range f.calls("time", "Sleep") {
				t.Errorf("%s:%d sleeps: wait for what you need (a timer beside ctx.Done(), a channel); in tests use testing/synctest", f.path, f.line(call))
			}
		}
	}
}

// joins lists every go statement of the library and of e2e, by function, and how the goroutine is
// joined. sync.WaitGroup.Go and errgroup.Group.Go are not go statements: their group joins them.
var joins = map[string]string{
	"shard.session.run":             "run receives lead's result from done before it returns",
	"controller.Controller.Run":     "receives what it returned",
	"envtest.build":                 "receives from stopped before returning",
	"envtest.startProcess":          "Stop waits for done; the process ends at the latest when its pipe closes",
	"envtest.untilSignal":           "the function that it returns receives from joined",
	"internal/run.call":             "receives from answers; Join joins a call that outlives its context, or names it (M1)",
	"e2e/ha.replicaMain":            "ends with the process, which is a command's",
	"leaderelection.candidate.term": "receives from done, or Run returns an error when its patience is over (L5)",
	"sweep.run.end":                 "receives from done, or names what still runs",
	"sweep.run.do":                  "receives from result, or says that the step has not returned",
	"sweep.run.idle":                "receives from results",
	"sweep.run.live":                "receives from returned, or names what still runs",
	"debug.tracer.send":             "receives from ended until it is closed",
	"manager.Manager.Trace":         "receives from all until over is closed",
	"manager.stage.stop":            "receives from joined, or names what still runs when the deadline passes (M1)",
}

func TestGoStatements(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range append(library(t), inModule(t, "e2e")...) {
		for _, f := range p.production() {
			for name, fn := range f.funcs() {
				ast.Inspect(fn, func(n ast.Node) bool {
					if _, ok := n.(*ast.GoStmt); ok {
						key := p.dir + "." + name
						seen[key] = true
						if joins[key] == "" {
							t.Errorf("%s:%d starts a goroutine: join it before returning and say in joins (layout_test.go) how, under %q", f.path, f.line(n), key)
						}
					}
					return true
				})
			}
		}
	}
	for key := range joins {
		testkit.Equal(t, seen[key], true, fmt.Sprintf("joins in layout_test.go lists %q, which starts no goroutine", key), "remove the line")
	}
}

// TestGenerators requires that the examples' generators have the versions of tools/go.mod. A copy
// of an example has no tools/, so each names its generator in full.
func TestGenerators(t *testing.T) {
	pinned := read(t, "tools/go.mod")
	run := regexp.MustCompile(`(?m)^//go:generate go .*\brun (\S+)@(\S+)`)
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, m := range run.FindAllStringSubmatch(f.text, -1) {
				module := m[1]
				for module != "." && !strings.Contains(pinned, "\t"+module+" ") {
					module = path.Dir(module)
				}
				if !strings.Contains(pinned, "\t"+module+" "+m[2]) {
					t.Errorf("%s runs %s@%s: tools/go.mod does not require that version; make the two agree", f.path, m[1], m[2])
				}
			}
		}
	}
}

func TestReadmeNamesEveryPackage(t *testing.T) {
	readme := read(t, "README.md")
	for _, p := range library(t) {
		if p.dir != "." && !strings.Contains("/"+p.dir, "/internal/") && p.name() != "main" && !p.onlyTests() && !strings.Contains(readme, "[`"+p.dir+"`]("+p.dir+")") {
			t.Errorf("README.md does not name %s: add it to its table of packages", p.dir)
		}
	}
}

// TestSnippets compares blocks of Go and of patches in README.md, CONTRIBUTING.md and docs/ with
// tested files. A block must follow a line "<!-- from path/to/file.go -->". Its lines must be in
// that file in the same order without a gap, apart from indentation. A line "..." stands for
// omitted lines.
func TestSnippets(t *testing.T) {
	docs, err := filesNamed("docs", ".md")
	testkit.NoError(t, err)
	for _, doc := range append(docs, "README.md", "CONTRIBUTING.md") {
		for _, s := range snippets(read(t, doc)) {
			if s.from == "" {
				t.Errorf("%s:%d: a block of Go or of a patch must follow a line <!-- from path/to/file.go -->", doc, s.line)
				continue
			}
			source, err := os.ReadFile(path.Clean(s.from))
			if err != nil {
				t.Errorf("%s:%d: %v", doc, s.line, err)
				continue
			}
			testkit.Equal(t, s.missingFrom(string(source)), "", fmt.Sprintf("%s:%d", doc, s.line), fmt.Sprintf("%s has no such lines, starting at", s.from))
		}
	}
}
