// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package envtest

import (
	"os"
	"path/filepath"
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
	text, err := os.ReadFile(running)
	testkit.NoError(t, err)
	testkit.Equal(t, string(text), "an argument\n")
	dead := waitDead(t, d.lock.Name())
	testkit.NoError(t, d.lock.Close()) // as if we had died, but for the pipe
	testkit.Equal(t, p.stop(p.cmd.WaitDelay), nil)
	dead()
	testkit.Equal(t, exists(t, d.path), false)
	testkit.Equal(t, exists(t, d.lock.Name()), false)
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
		testkit.ErrorContains(t, err, part)
	}
	testkit.Equal(t, p.stop(p.cmd.WaitDelay), nil)
}

// E1: prebuilt binaries are used only on request, and must exist.
func TestFindAssets(t *testing.T) {
	a := fakeAsset(t, etcdName, "")
	t.Setenv(assetsVariable, "")
	testkit.ErrorContains(t, testkit.Err(findAssets(Options{})), assetsVariable, "without the variable")
	t.Setenv(assetsVariable, a.dir)
	testkit.ErrorContains(t, testkit.Err(findAssets(Options{})), a.dir+": kube-apiserver: no such file", "without kube-apiserver")
	testkit.NoError(t, os.WriteFile(filepath.Join(a.dir, apiServerName), nil, 0o755))
	testkit.Equal(t, testkit.Err(findAssets(Options{})), nil)
	testkit.ErrorContains(t, testkit.Err(findAssets(Options{Controllers: true})), "kube-controller-manager", "without kube-controller-manager")
	// They are ignored unless requested.
	t.Setenv(programVariable, "/no/such/program")
	testkit.ErrorContains(t, testkit.Err(findCommands(t.Context(), Options{})), programVariable, "not asked for")
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
