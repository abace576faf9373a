// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package envtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// waitDead returns when no process has the lock file open: neither the helper nor a child of it.
func waitDead(t *testing.T, lock string) func() {
	t.Helper()
	f, err := os.Open(lock)
	testkit.NoError(t, err)
	return func() {
		defer f.Close()
		testkit.NoError(t, testkit.Err(lockFile(f, true, true)))
	}
}

// E5: a killed test binary leaves no child and no data.
func TestE5_KilledParent(t *testing.T) {
	needProgram(t)
	t.Setenv("TMPDIR", t.TempDir())
	for name, end := range map[string]func(*os.Process, func()){
		"killed":     func(p *os.Process, _ func()) { _ = p.Kill() },
		"terminated": func(p *os.Process, _ func()) { _ = p.Signal(syscall.SIGTERM) },
		"ended":      func(_ *os.Process, end func()) { end() }, // without Stop
	} {
		t.Run(name, func(t *testing.T) {
			report, process, wait := startHelper(t)
			dead := waitDead(t, report.Lock)
			end(process, wait)
			dead()
			testkit.Equal(t, exists(t, report.Dir), false)
			testkit.Equal(t, exists(t, report.Lock), false)
			host, err := url.Parse(report.Host)
			testkit.NoError(t, err)
			if conn, err := net.Dial("tcp", host.Host); err == nil {
				conn.Close()
				t.Errorf("%s still answers", host.Host)
			}
		})
	}
}

// E5: if the children were killed too, the next start removes their data, and keeps the data of
// running ones.
func TestE5_KilledFamily(t *testing.T) {
	needProgram(t)
	t.Setenv("TMPDIR", t.TempDir())
	report, process, wait := startHelper(t)
	dead := waitDead(t, report.Lock)
	_ = process.Signal(syscall.SIGSTOP) // so that it does not tidy up after its children
	for _, pid := range report.Pids {
		testkit.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	_ = process.Kill()
	dead()
	wait()
	testkit.Equal(t, exists(t, report.Dir), true, "the data of a killed family")
	living, err := newRunDir(runParent())
	testkit.NoError(t, err)
	testkit.Equal(t, exists(t, report.Dir), false)
	testkit.Equal(t, exists(t, report.Lock), false)
	next, err := newRunDir(runParent())
	testkit.NoError(t, err)
	testkit.Equal(t, exists(t, living.path), true, "a start removed the directory of a living one")
	for _, d := range []*runDir{living, next} {
		testkit.Equal(t, d.remove(), nil)
	}
}

// E4, E5: later errors and Stop name a process that ended by itself, with its last lines.
func TestE4_KilledChild(t *testing.T) {
	needProgram(t)
	ctx := testContext(t)
	var progress testkit.Buffer
	c, err := Start(ctx, Options{Progress: &progress})
	testkit.NoError(t, err)
	server := c.plane.list()[1]
	testkit.NoError(t, server.cmd.Process.Kill())
	<-server.done
	_, err = c.Namespace(ctx, "late")
	for what, text := range map[string]string{"Namespace": errorText(err), "Stop": errorText(c.Stop()), "Stop again": errorText(c.Stop()), "Progress": progress.String()} {
		testkit.Contains(t, text, "kube-apiserver", what)
		testkit.Contains(t, text, "signal: killed", what)
		testkit.Contains(t, text, "its last lines:\n", what)
	}
	testkit.Equal(t, exists(t, c.plane.dir.path), false, "the data is still there")
}

// The API server restarts at the same address, with its data. Meanwhile its address refuses
// connections.
func TestRestartAPIServer(t *testing.T) {
	needProgram(t)
	ctx := testContext(t)
	c, err := Start(ctx, Options{})
	testkit.NoError(t, err)
	defer c.Stop()
	host := c.Config().Host
	create(ctx, t, c.dynamic.Resource(configMaps).Namespace("default"), object("v1", "ConfigMap", "kept"))
	for range 2 { // the second time nothing happens
		testkit.NoError(t, c.StopAPIServer())
	}
	_, err = c.Namespace(ctx, "none")
	// An old connection may break first.
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		_, err = c.Namespace(ctx, "none")
	}
	testkit.ErrorIs(t, err, syscall.ECONNREFUSED, "without an API server")
	// Another program takes the port.
	address := strings.TrimPrefix(host, "https://")
	thief, err := net.Listen("tcp", address)
	testkit.NoError(t, err)
	err = c.StartAPIServer(ctx)
	testkit.ErrorContains(t, err, "address already in use", "with its port taken")
	testkit.ErrorContains(t, err, address, "with its port taken")
	thief.Close()
	for range 2 {
		testkit.NoError(t, c.StartAPIServer(ctx))
	}
	testkit.Equal(t, c.Config().Host, host, "the address after the restart")
	testkit.Equal(t, testkit.Err(c.dynamic.Resource(configMaps).Namespace("default").Get(ctx, "kept", metav1.GetOptions{})), nil, "its data")
	server := c.plane.find(apiServerName)
	for range 2 { // the second time nothing happens
		testkit.NoError(t, c.KillAPIServer())
	}
	testkit.ErrorContains(t, server.err, "signal: killed", fmt.Sprintf("killed, it ended with %v", server.err))
	testkit.NoError(t, c.StartAPIServer(ctx))
	testkit.Equal(t, c.Stop(), nil)
	testkit.ErrorContains(t, c.StartAPIServer(ctx), "has been stopped", "after Stop")
}

func TestRunDirOfAnother(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "file")
	testkit.NoError(t, os.WriteFile(parent, nil, 0o600))
	testkit.ErrorContains(t, testkit.Err(newRunDir(parent)), parent, "a file as the directory of run directories")
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	testkit.ErrorContains(t, testkit.Err(newRunDir(long)), "set TMPDIR to a shorter directory", "a path that is too long for a socket")
	left, _ := filepath.Glob(filepath.Join(long, "*"))
	testkit.Len(t, left, 0, "left behind")
}
