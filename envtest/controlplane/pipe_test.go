// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/component-base/version"
)

func TestStampVersion(t *testing.T) {
	if err := stampVersion("v1.99.7"); err != nil {
		t.Fatal(err)
	}
	if got := version.Get(); got.GitVersion != "v1.99.7" || got.Major != "1" || got.Minor != "99" {
		t.Errorf("/version would say %s (%s.%s)", got.GitVersion, got.Major, got.Minor)
	}
}

func TestPipe(t *testing.T) {
	var out bytes.Buffer
	p := newPipe(strings.NewReader("{\"protocol\": 1, \"dir\": \"/d\"}\nwhat follows does not count"), &out)
	var c etcdConfig
	if err := p.read(&c); err != nil || c.Dir != "/d" {
		t.Fatalf("%+v, %v", c, err)
	}
	p.wait() // returns, for the input ends
	p.serving("here")
	if p.fail(errors.New("late")) {
		t.Error("told a parent twice")
	}
	if got := out.String(); got != "{\"address\":\"here\"}\n" {
		t.Errorf("told the parent %q", got)
	}
}

func TestWrongInput(t *testing.T) {
	for input, want := range map[string]string{
		"":                      "standard input ended",
		"{":                     "standard input ended",
		"hello\n":               "does not begin with a configuration",
		"{\"protocol\": 2}\n":   "rebuild it",
		"{\"dir\": \"/tmp\"}\n": "rebuild it",
	} {
		err := newPipe(strings.NewReader(input), &bytes.Buffer{}).read(new(etcdConfig))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to say %q", input, err, want)
		}
	}
}
