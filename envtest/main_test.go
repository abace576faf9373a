// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// helperVariable makes the test binary a program that starts a control plane and is killed.
const helperVariable = "SETPOINT_ENVTEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		if err := helper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	// Like goleak.VerifyTestMain, but after the shared control plane has ended.
	for _, err := range []error{stopShared(), goleak.Find()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func errorText(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// testTimeout only prevents a broken test from hanging.
const testTimeout = 2 * time.Minute

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// Tests that request it share one control plane with controllers (E2).
var shared = sync.OnceValues(func() (*Cluster, error) {
	return Start(context.Background(), Options{CRDs: []string{"testdata/lamps.yaml"}, Controllers: true})
})

var sharedUsed bool // written before the tests that use shared end

func sharedCluster(t *testing.T) *Cluster {
	t.Helper()
	needProgram(t)
	sharedUsed = true
	c, err := shared()
	testkit.NoError(t, err)
	return c
}

func stopShared() error {
	if !sharedUsed {
		return nil
	}
	c, err := shared()
	if err != nil {
		return nil // told already
	}
	return c.Stop()
}

// needProgram skips a test that needs the control plane program, with -short.
func needProgram(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
}

// helperReport is what the helper writes when its control plane serves.
type helperReport struct {
	Host, Dir, Lock string
	Pids            []int
}

func helper() error {
	c, err := Start(context.Background(), Options{Controllers: true})
	if err != nil {
		return err
	}
	r := helperReport{Host: c.Config().Host, Dir: c.plane.dir.path, Lock: c.plane.dir.lock.Name()}
	for _, p := range c.plane.list() {
		r.Pids = append(r.Pids, p.cmd.Process.Pid)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until it is told to end, without Stop
	return err
}

// startHelper returns when the helper's control plane serves. end closes its standard input and
// waits.
func startHelper(t *testing.T) (report helperReport, process *os.Process, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testkit.NoError(t, err)
	out, err := cmd.StdoutPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, cmd.Start())
	end = sync.OnceFunc(func() { in.Close(); _ = cmd.Wait() })
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	testkit.NoError(t, err, "the helper ended before its control plane served")
	testkit.NoError(t, json.Unmarshal(line, &report))
	return report, cmd.Process, end
}
