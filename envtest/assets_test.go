// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package envtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// fakeAsset is a binary that reports in a pipe that it runs, and then blocks until it is killed.
func fakeAsset(t *testing.T, name, script string) *assets {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return &assets{dir: dir, options: Options{Progress: &testkit.Buffer{}}.withDefaults()}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	testkit.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}

// E5 with prebuilt binaries: when the pipe closes, the shell kills its binary and removes the data.
func TestSupervisedEnds(t *testing.T) {
	running, never := fifo(t), fifo(t)
	a := fakeAsset(t, etcdName, "echo $1 >"+running+"; read line <"+never)
	d, err := newRunDir(runParent())
	testkit.NoError(t, err)
	p, err := a.start(etcdName, d, d.path, d.lock.Name(), "an argument")
	testkit.NoError(t, err)
	if text, err := os.ReadFile(running); err != nil || string(text) != "an argument\n" {
		t.Fatalf("%q, %v", text, err)
	}
	dead := waitDead(t, d.lock.Name())
	if err := d.lock.Close(); err != nil { // as if we had died, but for the pipe
		t.Fatal(err)
	}
	testkit.Equal(t, p.stop(p.cmd.WaitDelay), nil)
	dead()
	if exists(t, d.path) || exists(t, d.lock.Name()) {
		t.Error("the data or its lock is still there")
	}
}

// E4 with prebuilt binaries: the shell forwards the exit status and the output of its binary.
func TestSupervisedFails(t *testing.T) {
	a := fakeAsset(t, etcdName, "echo out; echo err >&2; exit 7")
	d, err := newRunDir(runParent())
	testkit.NoError(t, err)
	defer d.remove()
	p, err := a.etcd(d)
	testkit.NoError(t, err)
	_, err = p.ready(testContext(t))
	for _, part := range []string{"etcd", "exit status 7", "out", "err"} {
		testkit.Contains(t, errorText(err), part)
	}
	testkit.Equal(t, p.stop(p.cmd.WaitDelay), nil)
}

// E1: prebuilt binaries are used only on request, and must exist.
func TestFindAssets(t *testing.T) {
	a := fakeAsset(t, etcdName, "")
	t.Setenv(assetsVariable, "")
	if _, err := findAssets(Options{}); !strings.Contains(errorText(err), assetsVariable) {
		t.Errorf("without the variable: %v", err)
	}
	t.Setenv(assetsVariable, a.dir)
	if _, err := findAssets(Options{}); !strings.Contains(errorText(err), a.dir+": kube-apiserver: no such file") {
		t.Errorf("without kube-apiserver: %v", err)
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(a.dir, apiServerName), nil, 0o755))
	testkit.Equal(t, testkit.Err(findAssets(Options{})), nil)
	if _, err := findAssets(Options{Controllers: true}); !strings.Contains(errorText(err), "kube-controller-manager") {
		t.Errorf("without kube-controller-manager: %v", err)
	}
	// They are ignored unless requested.
	t.Setenv(programVariable, "/no/such/program")
	if _, err := findCommands(t.Context(), Options{}); !strings.Contains(errorText(err), programVariable) {
		t.Errorf("not asked for: %v", err)
	}
}

// E1: a whole control plane of real binaries, if they are installed.
func TestKubebuilderAssets(t *testing.T) {
	needProgram(t)
	if os.Getenv(assetsVariable) == "" {
		t.Skip(assetsVariable + " is not set")
	}
	ctx := testContext(t)
	c, err := Start(ctx, Options{UseKubebuilderAssets: true, CRDs: []string{"testdata/lamps.yaml"}})
	testkit.NoError(t, err)
	name, err := c.Namespace(ctx, "assets")
	testkit.NoError(t, err)
	create(ctx, t, c.dynamic.Resource(lamps).Namespace(name), object("envtest.setpoint.dev/v1", "Lamp", "desk"))
	testkit.Equal(t, c.Stop(), nil)
	testkit.Equal(t, exists(t, c.plane.dir.path), false, "its data is still there")
}
