// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package envtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// fakeGo puts a go command first in PATH that runs a script with the arguments of go. It returns
// the directory of a module to build, a cache directory and a file for the script's output.
func fakeGo(t *testing.T, script string) (src source, cache, log string) {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"bin", "src", "cache"} {
		testkit.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	log = filepath.Join(dir, "log")
	text := "#!/bin/sh\nLOG=" + log + "\n" + script + "\n"
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "go"), []byte(text), 0o755))
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "src", "go.mod"), []byte("module fake\n"), 0o644))
	t.Setenv("PATH", filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return source{dir: filepath.Join(dir, "src"), release: KubernetesVersion}, filepath.Join(dir, "cache"), log
}

// builds is a go command that builds a program which echoes.
const builds = `
echo "$*" >>$LOG
case $1 in
list) echo a; echo b;;
build)
	while test $# -gt 2; do shift; test $1 = -o && out=$2; done
	printf '#!/bin/sh\necho built\n' >$out; chmod +x $out;;
esac`

func cached(t *testing.T, cache string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(cache, "*"))
	testkit.NoError(t, err)
	var files []string
	for _, name := range all {
		if filepath.Ext(name) != ".lock" {
			files = append(files, filepath.Base(name))
		}
	}
	return files
}

// E1: a program is built once, and again only when its source changes. Only the finished program is
// kept.
func TestE1_BuildOnce(t *testing.T) {
	src, cache, log := fakeGo(t, builds)
	ctx := t.Context()
	var out testkit.Buffer
	first, err := cachedProgram(ctx, cache, src, &progressReport{out: &out})
	testkit.NoError(t, err)
	testkit.Count(t, out.String(), "\n", 1)
	testkit.Contains(t, out.String(), "building the control plane, Kubernetes "+KubernetesVersion)
	testkit.Contains(t, out.String(), cost)
	testkit.HasPrefix(t, filepath.Base(first), KubernetesVersion+"-"+runtime.Version()+"-")
	again, err := cachedProgram(ctx, cache, src, &progressReport{out: &out})
	testkit.Equal(t, err, nil, "the second time")
	testkit.Equal(t, again, first, "the second time")
	// "build -v -buildvcs=false".
	text, _ := os.ReadFile(log)
	testkit.Count(t, string(text), "build", 2)
	testkit.NoError(t, os.WriteFile(filepath.Join(src.dir, "main.go"), []byte("package main\n"), 0o644))
	changed, err := cachedProgram(ctx, cache, src, &progressReport{out: &out})
	testkit.Equal(t, err, nil, "after a change of the source")
	testkit.NotEqual(t, changed, first, "after a change of the source")
	testkit.Len(t, cached(t, cache), 2)
}

// E1: each release has its own requirements, and its own program in the cache.
func TestBuild_CachesReleasesBesideEachOther(t *testing.T) {
	src, cache, log := fakeGo(t, builds)
	for _, src.release = range releases() {
		path, err := cachedProgram(t.Context(), cache, src, &progressReport{out: &testkit.Buffer{}})
		testkit.NoError(t, err, src.release)
		testkit.HasPrefix(t, filepath.Base(path), string(src.release)+"-go", src.release)
	}
	testkit.Len(t, cached(t, cache), len(releases()), "in the cache")
	text, err := os.ReadFile(log)
	testkit.NoError(t, err)
	for _, r := range releases() {
		// One is list, the other build.
		testkit.Count(t, string(text), " -modfile="+r.requirements()+".mod -tags="+r.tag()+" ", 2, r)
	}
}

// E1: concurrent builds wait for each other.
func TestBuildConcurrently(t *testing.T) {
	// The script builds only while the other caller waits, which then opens the pipe for writing
	// and closes it.
	src, cache, log := fakeGo(t, "test $1 = list && cat ${LOG}.pipe"+builds)
	testkit.NoError(t, syscall.Mkfifo(log+".pipe", 0o600))
	var waiters sync.WaitGroup
	out := writerFunc(func(line string) {
		if strings.Contains(line, "waiting for another process") {
			testkit.Equal(t, os.WriteFile(log+".pipe", nil, 0o600), nil)
		}
	})
	for range 2 {
		waiters.Go(func() {
			testkit.Equal(t, testkit.Err(cachedProgram(t.Context(), cache, src, &progressReport{out: out})), nil)
		})
	}
	waiters.Wait()
	text, _ := os.ReadFile(log)
	testkit.Count(t, string(text), "list", 1)
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// E1: waiting for another build can be cancelled.
func TestBuildWaitCancelled(t *testing.T) {
	src, cache, log := fakeGo(t, `echo $$ >>$LOG.started; cat $LOG.pipe`)
	testkit.NoError(t, syscall.Mkfifo(log+".pipe", 0o600))
	first, stopFirst := context.WithCancel(t.Context())
	second, stopSecond := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { // this one builds until the pipe gets a writer
		_, err := cachedProgram(first, cache, src, &progressReport{out: &testkit.Buffer{}})
		testkit.ErrorIs(t, err, context.Canceled, "the build")
		testkit.ErrorContains(t, err, "the build of the control plane was stopped", "the build")
	})
	// Opening the other end returns when go runs.
	pipe, err := os.OpenFile(log+".pipe", os.O_WRONLY, 0)
	testkit.NoError(t, err)
	defer pipe.Close()
	_, err = cachedProgram(second, cache, src, &progressReport{out: writerFunc(func(string) { stopSecond() })})
	testkit.ErrorIs(t, err, context.Canceled, "the wait")
	testkit.ErrorContains(t, err, ".lock", "the wait")
	stopFirst()
	done.Wait()
	testkit.Len(t, cached(t, cache), 0, "a cancelled build leaves")
	// go and its children are dead: the pipe has no reader.
	testkit.NotEqual(t, testkit.Err(pipe.WriteString("x")), nil, "somebody still reads the pipe")
}

// Each failure has one clear sentence with the cause and the remedy. Nothing is left in the cache.
func TestBuildFails(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"full disk": {
			`test $1 = list && exit; echo "# k8s.io/api/core/v1" >&2; echo "compile: writing output: write /x/_pkg_.a: no space left on device" >&2; exit 1`,
			[]string{"the disk is full", "GOCACHE", "_pkg_.a"}},
		"full disk, downloading": {
			`echo "go: k8s.io/api@v0.36.3: write /m/api.zip: no space left on device" >&2; exit 1`,
			[]string{"the disk is full (go: k8s.io/api@v0.36.3: write /m/api.zip: no space left on device); ", "GOMODCACHE"}},
		"no network": {
			`echo 'go: k8s.io/api@v0.36.3: Get "https://proxy.golang.org/k8s.io/api/@v/v0.36.3.zip": dial tcp: lookup proxy.golang.org: no such host' >&2; exit 1`,
			[]string{"cannot be downloaded", "GOPROXY", programVariable, "k8s.io/api"}},
		"Go too old": {
			`echo "go: go.mod requires go >= 1.26.0 (running go 1.24.1; GOTOOLCHAIN=local)" >&2; exit 1`,
			[]string{"too old", "go >= 1.26.0", "GOTOOLCHAIN"}},
		"GOPROXY=off": {
			`echo "go: k8s.io/api@v0.36.3: module lookup disabled by GOPROXY=off" >&2; exit 1`,
			[]string{"GOPROXY", programVariable}},
		"something else": {
			`echo "go: strange" >&2; exit 3`,
			[]string{"exit status 3", "go: strange"}},
	} {
		t.Run(name, func(t *testing.T) {
			src, cache, _ := fakeGo(t, test.script)
			_, err := cachedProgram(t.Context(), cache, src, &progressReport{out: &testkit.Buffer{}})
			for _, part := range test.want {
				testkit.ErrorContains(t, err, part)
			}
			testkit.Len(t, cached(t, cache), 0, "left in the cache")
		})
	}
}

func TestNoGo(t *testing.T) {
	src, cache, _ := fakeGo(t, "")
	t.Setenv("PATH", t.TempDir())
	_, err := cachedProgram(t.Context(), cache, src, &progressReport{out: &testkit.Buffer{}})
	testkit.ErrorIs(t, err, errNoGo, "without a go command")
}

// A killed build leaves a directory; the next build removes it.
func TestBuildAfterKilled(t *testing.T) {
	src, cache, _ := fakeGo(t, builds)
	key, err := src.key()
	testkit.NoError(t, err)
	name := fmt.Sprintf("%s-%s-%s-%s-%s.tmp", KubernetesVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH, key)
	testkit.NoError(t, os.Mkdir(filepath.Join(cache, name), 0o755))
	testkit.NoError(t, testkit.Err(cachedProgram(t.Context(), cache, src, &progressReport{out: &testkit.Buffer{}})))
	if files := cached(t, cache); len(files) != 1 || strings.HasSuffix(files[0], ".tmp") {
		t.Errorf("in the cache: %v", files)
	}
}

// E1: the user's settings for other builds do not affect this one.
func TestBuildEnvironment(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=vendor -p=1 -race -modcacherw")
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOWORK", "/some/go.work")
	t.Setenv("GOPROXY", "https://example.com")
	env := strings.Join(buildEnvironment("/scratch"), "\n") + "\n"
	for _, want := range []string{"GOFLAGS=-p=1 -modcacherw\n", "GOWORK=off\n", "CGO_ENABLED=0\n", "GOTMPDIR=/scratch\n", "GOPROXY=https://example.com\n"} {
		testkit.Contains(t, env, want, fmt.Sprintf("no %q in", want))
	}
	testkit.NotContains(t, env, "GOOS=")
	testkit.NotContains(t, env, "/some/go.work")
}

func TestProgramVariable(t *testing.T) {
	t.Setenv(versionVariable, "")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testkit.NoError(t, os.WriteFile(file, nil, 0o644))
	for path, want := range map[string]string{
		file:                         "not an executable file",
		dir:                          "not an executable file",
		filepath.Join(dir, "nobody"): "no such file",
	} {
		t.Setenv(programVariable, path)
		_, err := Program(t.Context(), Options{Progress: &testkit.Buffer{}})
		testkit.ErrorContains(t, err, programVariable+"="+path)
		testkit.ErrorContains(t, err, want, path)
	}
	testkit.NoError(t, os.Chmod(file, 0o755))
	t.Setenv(programVariable, file)
	got, err := Program(t.Context(), Options{Progress: &testkit.Buffer{}})
	testkit.NoError(t, err)
	testkit.Equal(t, got, file)
}

// E4: the error names a file that is another program.
func TestStrangeProgram(t *testing.T) {
	t.Setenv(versionVariable, "")
	for text, want := range map[string]string{
		"#!/bin/sh\necho hello\n":                 "it is not the control plane program",
		"#!/bin/sh\necho what? >&2\nexit 7\n":     "exit status 7",
		"#!/bin/sh\necho '{\"error\": \"no\"}'\n": "etcd does not start: no",
	} {
		file := filepath.Join(t.TempDir(), "strange")
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o755))
		t.Setenv(programVariable, file)
		t.Setenv("TMPDIR", t.TempDir())
		c, err := Start(testContext(t), Options{})
		if err == nil {
			c.Stop()
		}
		testkit.ErrorContains(t, err, want, text)
	}
}
