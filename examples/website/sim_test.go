// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"testing"
)

// Without -once the sim keeps running for kubectl: here, a second run of this program uses it with
// -kubeconfig, beside the operator of the first.
func TestSim_ServesOtherProcesses(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	var kubeconfig string
	out := &trigger{on: "Ctrl-C stops"}
	out.do = func() {
		kubeconfig = regexp.MustCompile(`export KUBECONFIG=(\S+)`).FindStringSubmatch(out.String())[1]
		code, stdout, stderr := execute(t.Context(), "-once", "-kubeconfig", kubeconfig)
		if code != exitOK {
			t.Errorf("exit status %d\n%s", code, stderr)
		}
		wantStory(t, stdout, "your cluster, of the kubeconfig "+kubeconfig)
		interrupt(errors.New("interrupted by the test"))
	}
	var errs bytes.Buffer
	if code := run(ctx, nil, out, &errs); code != exitInterrupted {
		t.Errorf("exit status %d\n%s", code, out.String())
	}
	wantSentence(t, errs.String(), "interrupted by the test")
	if _, err := os.Stat(kubeconfig); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig %q is left: %v", kubeconfig, err)
	}
}
