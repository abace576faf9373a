// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// rewrite replaces text in the files of a suite, because the specs use an unexported name.
type rewrite struct{ file, old, by string }

// suite is a package of controller-runtime's tests.
type suite struct {
	name, folder string
	// copied moves the tests to a folder of their own, which has no other files. A package that
	// crbridge imports cannot import crbridge from its own tests.
	copied   string
	rewrites []rewrite
}

// suites are run with manager.New, cache.New and client.New of crbridge.
func suites() []suite {
	return []suite{
		{name: "builder", folder: "builder"},
		{name: "builder, level b", folder: "builder", copied: "builderb", rewrites: levelB()},
		// Namespaces have no options of their own.
		{name: "cache", folder: "cache", rewrites: []rewrite{
			{"cache_test.go", "cache.AllNamespaces: {FieldSelector: fields.OneTermEqualSelector(\"metadata.namespace\", testNamespaceOne)},\n\t\t\ttestNamespaceTwo", "testNamespaceOne: {},\n\t\t\ttestNamespaceTwo"},
		}},
		{name: "client", folder: "client"},
		{name: "controller", folder: "controller"},
		{name: "manager", folder: "manager", rewrites: unhooked()},
		{name: "source", folder: "source"},
	}
}

// levelB makes the specs of controllers use crbridge's builder, without the types of the webhooks'.
func levelB() []rewrite {
	const file = "controller_test.go"
	imports := "import (\n\t\"github.com/setpoint-dev/setpoint/crbridge\"\n\t. \"sigs.k8s.io/controller-runtime/pkg/builder\"\n"
	return []rewrite{
		{file, "import (\n", imports},
		{file, "var _ untypedWatchesInput = (*WatchesInput[struct{}])(nil)", ""},
		{file, "ControllerManagedBy(", "crbridge.NewControllerManagedBy("},
		{file, "*TypedBuilder[reconcile.Request]", "*crbridge.Builder"},
		{file, "builder.newController = ", "_ = "},
		{file, "m.GetScheme().AddKnownTypes(testDefaultValidatorGVK.GroupVersion(),\n\t\t\t\t&TestDefaultValidator{},\n\t\t\t\t&TestDefaultValidatorList{},\n\t\t\t)", ""},
		{file, "metav1.AddToGroupVersion(m.GetScheme(), testDefaultValidatorGVK.GroupVersion())", ""},
		{file, "&TestDefaultValidator{}", "&appsv1.StatefulSet{}"},
		{"builder_suite_test.go", "addCRDToEnvironment(testenv,\n\t\ttestDefaulterGVK,\n\t\ttestValidatorGVK,\n\t\ttestDefaultValidatorGVK)", ""},
		{"webhook_test.go", "", ""},
		{"example_test.go", "", ""},
		{"example_webhook_test.go", "", ""},
	}
}

// unhooked leaves out of the specs where they look into controller-runtime's manager.
func unhooked() []rewrite {
	const file = "manager_test.go"
	const started = "return mgr.runnables.Caches.Started()"
	const cast = "mgr, ok := m.(*controllerManager)\n\t\t\t\tExpect(ok).To(BeTrue())\n"
	return []rewrite{
		{file, "cm, ok := m.(*controllerManager)\n\t\t\t\t\tExpect(ok).To(BeTrue())\n\t\t\t\t\tcm.onStoppedLeading = func() {}", ""},
		{file, cast + "\n\t\t\t\t// Add one", "// Add one"},
		{file, "mgr, ok := m.(*controllerManager)\n\t\t\tExpect(ok).To(BeTrue())\n\n\t\t\tgo func", "go func"},
		{file, cast + "\t\t\t\t" + started, started},
		{file, started, "<-m.Elected()\n\t\t\t\treturn true"},
		{file, "<-m.(*controllerManager).elected", "<-m.Elected()"},
	}
}

// TestSuites runs controller-runtime's own tests with this package in place of its manager, its
// cache and the transport of its client. testdata/suites/exceptions.txt lists the specs that do
// not apply or fail.
func TestSuites(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it builds and runs seven test suites, which takes minutes; set SETPOINT_FULL=1")
	}
	exceptions := readExceptions(t)
	work := workspace(t)
	for _, s := range suites() {
		if only := os.Getenv("SETPOINT_SUITE"); only != "" && only != s.name {
			continue
		}
		t.Run(s.name, func(t *testing.T) { s.run(t, work, exceptions) })
	}
}

// exception is a pattern of specs that do not pass; * is any text. One that does not apply is not
// run.
type exception struct {
	suite   string
	applies bool
	spec    *regexp.Regexp
}

func readExceptions(t *testing.T) (all []exception) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "suites", "exceptions.txt"))
	testkit.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part := strings.Split(line, " | ")
		if len(part) != 4 || part[1] != "fails" && part[1] != "not applicable" {
			t.Fatalf("exceptions.txt: %q is not of the form \"suite | fails or not applicable | spec | reason\"", line)
		}
		spec := strings.ReplaceAll(regexp.QuoteMeta(part[2]), `\*`, ".*")
		all = append(all, exception{part[0], part[1] == "fails", regexp.MustCompile(spec + "$")})
	}
	return all
}

// workspace returns a directory with a copy of controller-runtime in which the constructors are
// variables, and a go.work of the copy and the modules here.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/controller-runtime")
	source, err := list.Output()
	testkit.NoError(t, err)
	theirs := filepath.Join(dir, "controller-runtime")
	testkit.NoError(t, os.CopyFS(theirs, os.DirFS(strings.TrimSpace(string(source)))))
	for file, declaration := range map[string]string{
		"cache/cache.go": "(cfg *rest.Config, opts Options) (Cache, error) {", "client/client.go": "(config *rest.Config, options Options) (Client, error) {",
		"manager/manager.go": "(config *rest.Config, options Options) (Manager, error) {",
	} {
		edit(t, filepath.Join(theirs, "pkg", file), "func New"+declaration, "var New = newUnlessReplaced\n\nfunc newUnlessReplaced"+declaration)
	}
	here, err := os.Getwd()
	testkit.NoError(t, err)
	work := fmt.Sprintf("go 1.26.0\n\nuse (\n\t%s\n\t%s\n\t%s\n)\n", theirs, here, filepath.Dir(here))
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "go.work"), []byte(work), 0o600))
	return dir
}

func edit(t *testing.T, file, old, by string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%s has changed: it has no %q", file, old)
	}
	testkit.NoError(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte(old), []byte(by)), 0o600))
}

// prepare returns the folder of the suite's tests.
func (s suite) prepare(t *testing.T, work string) string {
	t.Helper()
	packages := filepath.Join(work, "controller-runtime", "pkg")
	folder := filepath.Join(packages, s.folder)
	if s.copied != "" {
		folder = filepath.Join(packages, s.copied)
		files, err := filepath.Glob(filepath.Join(packages, s.folder, "*_test.go"))
		testkit.NoError(t, err)
		testkit.NoError(t, os.MkdirAll(folder, 0o750))
		for _, f := range files {
			text, err := os.ReadFile(f)
			testkit.NoError(t, err)
			testkit.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(f)), text, 0o600))
		}
	}
	for _, r := range s.rewrites {
		file := filepath.Join(folder, r.file)
		if r.old != "" {
			edit(t, file, r.old, r.by)
		} else if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	hook, err := os.ReadFile(filepath.Join("testdata", "suites", "hook.txt"))
	testkit.NoError(t, err)
	hook = bytes.ReplaceAll(hook, []byte("PACKAGE"), []byte(s.folder))
	testkit.NoError(t, os.WriteFile(filepath.Join(folder, "hook_test.go"), hook, 0o600))
	return folder
}

func (s suite) run(t *testing.T, work string, exceptions []exception) {
	folder := s.prepare(t, work)
	kubeconfig, report := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "report.json")
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	testkit.NoError(t, cluster.WriteKubeconfig(kubeconfig))
	args := []string{"test", "-count=1", ".", "-ginkgo.timeout=4m", "-ginkgo.json-report=" + report}
	for _, e := range exceptions {
		if e.suite == s.name && !e.applies {
			args = append(args, "-ginkgo.skip="+e.spec.String())
		}
	}
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK="+filepath.Join(work, "go.work"), "GOFLAGS=", "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+kubeconfig)
	output, _ := command.CombinedOutput() // the report has the failures
	s.compare(t, report, output, exceptions)
}

// compare prints the suite's row of the table, and fails if the exceptions are not exact.
func (s suite) compare(t *testing.T, report string, output []byte, exceptions []exception) {
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
			Failure                           struct{ Message string }
		}
	}
	testkit.NoError(t, json.Unmarshal(text, &suites))
	states, failed := map[string]int{}, map[string]string{}
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			spec := strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")
			switch {
			case r.LeafNodeType != "It" && r.State == "passed":
			case r.State == "passed", r.State == "pending", r.State == "skipped":
				states[r.State]++
			default:
				states["failed"]++
				failed[spec] = strings.Join(strings.Fields(r.Failure.Message), " ")
			}
		}
	}
	t.Logf("%-20s %4d passed %4d failed %4d not applicable %4d pending in controller-runtime", s.name, states["passed"], states["failed"], states["skipped"], states["pending"])
	used := map[exception]bool{}
	for spec, message := range failed {
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.suite == s.name && e.applies && e.spec.MatchString(spec) })
		if i < 0 {
			t.Errorf("%s | fails | %s | %s", s.name, spec, message)
			continue
		}
		used[exceptions[i]] = true
	}
	for _, e := range exceptions {
		if e.suite == s.name && e.applies && !used[e] {
			t.Errorf("%s passes now; remove it from exceptions.txt: %s", s.name, e.spec)
		}
	}
}
