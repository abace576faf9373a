// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"

	"github.com/setpoint-dev/setpoint/tools/internal/api"
	"github.com/setpoint-dev/setpoint/tools/internal/plugin"
)

// builtSum is the sum of each archive.
const builtSum = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

// ready returns the files of a repository with two modules that is ready for v0.1.0.
func ready() map[string]string {
	return map[string]string{
		"go.mod":           "module example.com/setpoint\n\ngo 1.26.0\n",
		"go.work":          "go 1.26.0\n\nuse (\n\t.\n\t./cmd/tool\n)\n\nreplace example.com/setpoint v0.1.0 => ./\n",
		"cache/cache.go":   "package cache\n\nfunc Get(name string) string { return name }\n",
		"api/cache.txt":    "# The exported API of package cache, written by 'make api'.\nfunc Get(string) string\n",
		"cmd/tool/go.mod":  "module example.com/setpoint/cmd/tool\n\ngo 1.26.0\n\nrequire example.com/setpoint v0.1.0\n",
		"cmd/tool/main.go": "package main\n\nimport _ \"example.com/setpoint/cache\"\n\nfunc main() {}\n",
		"bench/go.mod":     "module example.com/setpoint/bench\n\ngo 1.26.0\n\nrequire example.com/setpoint v0.0.0\n\nreplace example.com/setpoint => ..\n",
		"CHANGELOG.md":     "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n\n- The first one.\n",
		"README.md":        "The newest version is v0.1.0.\n",
		"docs/versions.md": "| version |\n|---|\n| v0.1 |\n",
		plugin.ManifestFile: "spec:\n  version: v0.1.0\n  platforms:\n    - selector: {matchLabels: {os: linux, arch: amd64}}\n" +
			"      uri: https://example.com/releases/download/v0.1.0/a.tar.gz\n      sha256: " + builtSum + "\n",
	}
}

// newRelease commits the files to a new repository.
func newRelease(t *testing.T, version string, files map[string]string) release {
	t.Helper()
	r := release{
		repository{t.TempDir()}, []string{".", "cmd/tool"}, []string{"."}, version,
		func(context.Context, plugin.Platform) (string, error) { return builtSum, nil },
	}
	mustGit(t, r, "init", "--quiet", "--initial-branch=main")
	mustGit(t, r, "config", "user.name", "test")
	mustGit(t, r, "config", "user.email", "test@example.com")
	mustGit(t, r, "config", "commit.gpgSign", "false")
	mustGit(t, r, "config", "tag.gpgSign", "false")
	commit(t, r, files)
	return r
}

func commit(t *testing.T, r release, files map[string]string) {
	t.Helper()
	for name, text := range files {
		write(t, r, name, text)
	}
	mustGit(t, r, "add", "--all")
	mustGit(t, r, "commit", "--quiet", "--message=files")
}

func write(t *testing.T, r release, name, text string) {
	t.Helper()
	to := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustGit(t *testing.T, r release, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// state is what a refused release must not change.
func state(t *testing.T, r release) string {
	t.Helper()
	return mustGit(t, r, "show-ref") + "\n" + mustGit(t, r, "status", "--porcelain")
}

// with returns the files with these changed: pairs of a name and a text.
func with(files map[string]string, pairs ...string) map[string]string {
	changed := maps.Clone(files)
	for pair := range slices.Chunk(pairs, 2) {
		changed[pair[0]] = pair[1]
	}
	return changed
}

func TestTag_TagsAllModulesOfTheCommit(t *testing.T) {
	r := newRelease(t, "v0.1.0", ready())
	var out bytes.Buffer
	if err := r.tag(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if tags := mustGit(t, r, "tag"); tags != "cmd/tool/v0.1.0\nv0.1.0" {
		t.Errorf("tags:\n%s", tags)
	}
	for _, tag := range r.tags() {
		if got, head := mustGit(t, r, "rev-parse", tag+"^{commit}"), mustGit(t, r, "rev-parse", "HEAD"); got != head {
			t.Errorf("%s is %s, want HEAD, %s", tag, got, head)
		}
	}
	if want := "git push origin v0.1.0 cmd/tool/v0.1.0"; !strings.Contains(out.String(), want) {
		t.Errorf("printed\n%s\nwithout %q", out.String(), want)
	}
	before := state(t, r)
	err := r.tag(t.Context(), &out)
	if want := "release: the tag v0.1.0 exists; choose a later version"; err == nil || err.Error() != want {
		t.Errorf("the second run: %v, want %q", err, want)
	}
	if after := state(t, r); after != before {
		t.Errorf("the second run changed\n%s\nto\n%s", before, after)
	}
}

// TestTag_RefusesAWrongVersion requires one sentence, without any check.
func TestTag_RefusesAWrongVersion(t *testing.T) {
	r := newRelease(t, "", map[string]string{"a": "b"})
	mustGit(t, r, "tag", "v0.2.0")
	before := state(t, r)
	for version, want := range map[string]string{
		"0.1":        `release: "0.1" is not a version of the form v0.1.0; write three numbers after a v`,
		"v0.1":       `release: "v0.1" is not a version of the form v0.1.0; write three numbers after a v`,
		"v0.1.0+x":   `release: "v0.1.0+x" is not a version of the form v0.1.0; write three numbers after a v`,
		"v2.0.0":     `release: v2.0.0 needs module paths that end in /v2; change them in all go.mod files first`,
		"v0.2.0":     `release: the tag v0.2.0 exists; choose a later version`,
		"v0.1.9":     `release: v0.1.9 is lower than the last release, v0.2.0; choose a later version`,
		"v0.2.0-rc1": `release: v0.2.0-rc1 is lower than the last release, v0.2.0; choose a later version`,
	} {
		r.version = version
		if err := r.tag(t.Context(), new(bytes.Buffer)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", version, err, want)
		}
	}
	if after := state(t, r); after != before {
		t.Errorf("the refused releases changed\n%s\nto\n%s", before, after)
	}
}

func TestTag_NamesEachFailedCheck(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // in order; one sentence each
	}{
		"no section in the changelog": {with(ready(), "CHANGELOG.md", "## [Unreleased]\n"),
			[]string{"CHANGELOG.md has no section [0.1.0]: add"}},
		"an empty section without a date, and lines above": {with(ready(), "CHANGELOG.md", "## [Unreleased]\n\n- x\n\n## [0.1.0]\n"),
			[]string{"The section [0.1.0] of CHANGELOG.md has no date", "The section [0.1.0] of CHANGELOG.md is empty", "The section [Unreleased] of CHANGELOG.md has text"}},
		"a stale baseline": {with(ready(), "api/cache.txt", "# The exported API of package cache, written by 'make api'.\nfunc Put()\n"),
			[]string{"The folder api is not current, for example Get of package cache: run 'make api'"}},
		"an old requirement": {with(ready(), "cmd/tool/go.mod", "module example.com/setpoint/cmd/tool\n\ngo 1.26.0\n\nrequire example.com/setpoint v0.0.9\n", "go.work", strings.Replace(ready()["go.work"], "v0.1.0", "v0.0.9", 1)),
			[]string{"cmd/tool/go.mod requires example.com/setpoint v0.0.9: run 'go mod edit -require=example.com/setpoint@v0.1.0 cmd/tool/go.mod'.", "go.work replaces example.com/setpoint v0.0.9: write v0.1.0 there."}},
		"pages of another version": {with(ready(), "README.md", "Setpoint has no\nrelease yet.\n", "docs/versions.md", "none\n", "docs/a.md", "go get example.com/setpoint/cache@v0.0.9\n"),
			[]string{"README.md does not name v0.1.0", "docs/versions.md has no row for v0.1: add it", "README.md has \"no release yet\"", "docs/a.md has \"setpoint/cache@v0.0.9\": write v0.1.0 there."}},
		"a manifest of another version": {with(ready(), plugin.ManifestFile, "spec:\n  version: v0.0.9\n"),
			[]string{plugin.ManifestFile + " is for another version than v0.1.0: run 'make plugin VERSION=v0.1.0' and commit it."}},
		"a manifest without archives": {with(ready(), plugin.ManifestFile, "spec:\n  version: v0.1.0\n"),
			[]string{plugin.ManifestFile + " has no archive: run"}},
		"an archive of another version": {with(ready(), plugin.ManifestFile, strings.Replace(ready()[plugin.ManifestFile], "download/v0.1.0/", "download/v0.0.9/", 1)),
			[]string{plugin.ManifestFile + " has the archive https://example.com/releases/download/v0.0.9/a.tar.gz, of another version: run"}},
		"a manifest without a sum": {with(ready(), plugin.ManifestFile, strings.Replace(ready()[plugin.ManifestFile], builtSum, "SHA256", 1)),
			[]string{plugin.ManifestFile + " has no sum for a.tar.gz: run"}},
		"a sum of other sources": {with(ready(), plugin.ManifestFile, strings.Replace(ready()[plugin.ManifestFile], builtSum, "0b"+builtSum[2:], 1)),
			[]string{plugin.ManifestFile + " has a sum for a.tar.gz of other sources, or of another version of Go: run"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelease(t, "v0.1.0", c.files)
			before := state(t, r)
			problems, err := r.problems(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(problems)
			slices.Sort(c.want)
			if len(problems) != len(c.want) {
				t.Fatalf("found\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(c.want, "\n"))
			}
			for i, p := range problems {
				if !strings.HasPrefix(p, c.want[i]) || !strings.HasSuffix(p, ".") {
					t.Errorf("got %q, want a sentence that begins with %q", p, c.want[i])
				}
			}
			if err := r.tag(t.Context(), new(bytes.Buffer)); err == nil || strings.Count(err.Error(), "\n- ") != len(c.want) {
				t.Errorf("tag returned %v, want all %d sentences", err, len(c.want))
			}
			if after := state(t, r); after != before {
				t.Errorf("the refused release changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

func TestTag_NamesALicenseThatIsMissing(t *testing.T) {
	serve(t, "example.com/dep")
	r := newRelease(t, "v0.1.0", with(ready(), "cache/cache.go", "package cache\n\nimport _ \"example.com/dep\"\n\nfunc Get(name string) string { return name }\n"))
	cmd := exec.CommandContext(t.Context(), "go", "mod", "tidy")
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go mod tidy: %v\n%s", err, out)
	}
	commit(t, r, nil)
	problems, err := r.checkLicenses(t.Context(), "")
	want := "The module in . links example.com/dep v1.0.0: no file has its license; replace the module, or teach tools/internal/licenses the text."
	if err != nil || !slices.Contains(problems, want) {
		t.Errorf("got %v, %v, want %q", problems, err, want)
	}
	if err := r.tag(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("tag returned %v, want %q", err, want)
	}
}

// serve makes an empty module, at v1.0.0, the only one that go commands can download.
func serve(t *testing.T, path string) {
	t.Helper()
	m := module.Version{Path: path, Version: "v1.0.0"}
	source, proxy := t.TempDir(), t.TempDir()
	base := filepath.Join(proxy, path, "@v", m.Version)
	var archive bytes.Buffer
	for name, text := range map[string]string{
		filepath.Join(source, "go.mod"):           "module " + path + "\n",
		filepath.Join(source, "dep.go"):           "package dep\n",
		filepath.Join(filepath.Dir(base), "list"): m.Version + "\n",
		base + ".info":                            `{"Version": "v1.0.0"}`,
		base + ".mod":                             "module " + path + "\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(zip.CreateFromDir(&archive, m, source), os.WriteFile(base+".zip", archive.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file:///"+strings.TrimPrefix(filepath.ToSlash(proxy), "/"))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw")
}

func TestTag_RefusesChangesThatAreNotCommitted(t *testing.T) {
	r := newRelease(t, "v0.1.0", ready())
	write(t, r, "new.txt", "x")
	before := state(t, r)
	err := r.tag(t.Context(), new(bytes.Buffer))
	want := "release: v0.1.0 is not ready, and no tag was created:\n- The working tree has changes that are not committed, in new.txt: commit or stash them."
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if after := state(t, r); after != before {
		t.Errorf("the refused release changed\n%s\nto\n%s", before, after)
	}
}

// TestTag_CreatesAllTagsOrNone has a tag of a module that an earlier attempt has left behind.
func TestTag_CreatesAllTagsOrNone(t *testing.T) {
	r := newRelease(t, "v0.1.0", ready())
	mustGit(t, r, "tag", "cmd/tool/v0.1.0")
	before := state(t, r)
	err := r.tag(t.Context(), new(bytes.Buffer))
	if err == nil || !strings.HasPrefix(err.Error(), "release: cannot create the tag cmd/tool/v0.1.0, and no tag was created: ") {
		t.Errorf("got %v", err)
	}
	if after := state(t, r); after != before {
		t.Errorf("the refused release changed\n%s\nto\n%s", before, after)
	}
}

// second returns the files of a repository for a version after v0.1.0.
func second(version, source, lines, changes string) map[string]string {
	files := with(ready(), "cache/cache.go", source, "CHANGELOG.md",
		"## [Unreleased]\n\n## ["+strings.TrimPrefix(version, "v")+"] - 2026-12-02\n\n"+changes+"\n",
		"api/cache.txt", "# The exported API of package cache, written by 'make api'.\n"+lines)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "v0.1.0", version)
	}
	files["docs/versions.md"] = "\n| " + semver.MajorMinor(version) + " |\n"
	return files
}

func TestTag_ChecksTheChangesOfTheAPI(t *testing.T) {
	const (
		put      = "package cache\n\nfunc Put(name string) {}\n"
		both     = "package cache\n\nfunc Get(name string) string { return name }\n\nfunc Put(name string) {}\n"
		putLine  = "func Put(string)\n"
		bothLine = "func Get(string) string\nfunc Put(string)\n"
	)
	for name, c := range map[string]struct {
		version, source, lines, changes, want string
	}{
		"a patch adds":                       {"v0.1.1", both, bothLine, "- fixed", ""},
		"a patch removes":                    {"v0.1.1", put, putLine, "- `cache`: `Get` is gone", "Get of package cache has changed incompatibly, and v0.1.1 is a patch of v0.1.0: release the next minor version."},
		"a minor version removes":            {"v0.2.0", put, putLine, "- `cache`: `Get` is gone", ""},
		"a minor version removes in silence": {"v0.2.0", put, putLine, "- fixed", "Get of package cache has changed incompatibly since v0.1.0: name it in the section of CHANGELOG.md, with its replacement."},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelease(t, c.version, ready())
			mustGit(t, r, "tag", "v0.1.0")
			commit(t, r, second(c.version, c.source, c.lines, c.changes))
			err := r.tag(t.Context(), new(bytes.Buffer))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), "created:\n- "+c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestUnreleased_PrintsWhatHasChanged(t *testing.T) {
	r := newRelease(t, "", ready())
	var out bytes.Buffer
	if err := r.unreleased(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if want := "There is no release yet: the whole of api/ is new.\n\nThe section [Unreleased] of CHANGELOG.md is empty.\n"; out.String() != want {
		t.Errorf("before a release it printed\n%s\nwant\n%s", out.String(), want)
	}
	mustGit(t, r, "tag", "v0.1.0")
	write(t, r, "cache/cache.go", "package cache\n\nfunc Get(name string) int { return 0 }\n\nfunc New() {}\n")
	write(t, r, "CHANGELOG.md", "## [Unreleased]\n\n- `cache.Get` returns an int.\n")
	out.Reset()
	if err := r.unreleased(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	want := "The API since v0.1.0: 2 changes, 1 of them incompatible.\n\n" +
		"- cache: func Get(string) string\n+ cache: func Get(string) int\n+ cache: func New()\n\n- `cache.Get` returns an int.\n"
	if out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", out.String(), want)
	}
	if b, err := api.Read(filepath.Join(r.root, "api")); err != nil || len(b["cache"]) != 1 {
		t.Errorf("it changed the baseline: %v, %v", b, err)
	}
}
