// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package testkit_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that keeps what a check reports.
type recorder struct {
	testing.TB
	text  string
	fatal bool
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.text += fmt.Sprint(args...) }
func (r *recorder) Fatal(args ...any) { r.fatal = true; r.Error(args...) }

func TestChecks_Fail(t *testing.T) {
	keys, odd := []string{"a", "b"}, struct{ N int }{4}
	absent, boom := error(nil), errors.New("boom")
	first, second := "Kind: Lease\n"+strings.Repeat("x", 80), []string{strings.Repeat("y", 90)}
	for want, check := range map[string]func(t testing.TB){
		`len(keys) is 2, want 3`:                            func(t testing.TB) { testkit.Equal(t, len(keys), 3) },
		`a slow worker: late: len(keys) is 2, want 3`:       func(t testing.TB) { testkit.Equal(t, len(keys), 3, "a slow worker", "late") },
		`7: {N:4}: keys[0] is "a", want "a "`:               func(t testing.TB) { testkit.Equal(t, keys[0], "a ", 7, odd) },
		`time.Minute is 1m0s, want 1s`:                      func(t testing.TB) { testkit.Equal(t, time.Minute, time.Second) },
		`absent is <nil>, want "boom"`:                      func(t testing.TB) { testkit.Equal(t, absent, boom) },
		`boom is "boom", want <nil>`:                        func(t testing.TB) { testkit.Equal(t, boom, nil) },
		`odd is {N:4}, want {N:5}`:                          func(t testing.TB) { testkit.Equal(t, odd, struct{ N int }{5}) },
		`absent is <nil>, want another value than <nil>`:    func(t testing.TB) { testkit.NotEqual(t, absent, nil) },
		`keys is ["a" "b"], want ["b"]`:                     func(t testing.TB) { testkit.SlicesEqual(t, keys, []string{"b"}) },
		`any(keys) is ["a" "b"], want []`:                   func(t testing.TB) { testkit.DeepEqual(t, any(keys), []string{}) },
		`keys is ["a" "b"], length 2, want 3`:               func(t testing.TB) { testkit.Len(t, keys, 3) },
		`len(keys) is 2, want 3 to 4`:                       func(t testing.TB) { testkit.Between(t, len(keys), 3, 4) },
		`late: time.Minute is 1m0s, want 0s to 1s`:          func(t testing.TB) { testkit.Between(t, time.Minute, 0, time.Second, "late") },
		`keys[0] is "a", want a text that begins with "a-"`: func(t testing.TB) { testkit.HasPrefix(t, keys[0], "a-") },
		`len(keys) is 2, want at least 3`:                   func(t testing.TB) { testkit.AtLeast(t, len(keys), 3) },
		`time.Minute is 1m0s, want at most 59s`:             func(t testing.TB) { testkit.AtMost(t, time.Minute, 59*time.Second) },
		`strings.Join( keys, "-") is "a-b", want a text with "+"`: func(t testing.TB) {
			testkit.Contains(t, strings.Join(
				keys, "-"), "+")
		},
		`boom is "boom", want an error with "no right"`:      func(t testing.TB) { testkit.ErrorContains(t, boom, "no right") },
		`absent is <nil>, want an error with ""`:             func(t testing.TB) { testkit.ErrorContains(t, absent, "") },
		`keys[0] is "a", want a text without "a"`:            func(t testing.TB) { testkit.NotContains(t, keys[0], "a") },
		"late: keys[0] has \"a\" 1 times, want 0:\na":        func(t testing.TB) { testkit.Count(t, keys[0], "a", 0, "late") },
		"first has \"Pod\" 0 times, want 1:\n" + first:       func(t testing.TB) { testkit.Count(t, first, "Pod", 1) },
		`absent is <nil>, want one for "os.IsTimeout"`:       func(t testing.TB) { testkit.ErrorSatisfies(t, absent, os.IsTimeout) },
		`boom is "boom", want one that wraps "EOF"`:          func(t testing.TB) { testkit.ErrorIs(t, boom, io.EOF) },
		"first is\n" + first + "\nwant a text with\n\"Pod\"": func(t testing.TB) { testkit.Contains(t, first, "Pod") },
		"second is\n[\"" + second[0] + "\"]\nwant\n[]":       func(t testing.TB) { testkit.SlicesEqual(t, second, nil) },
	} {
		r := &recorder{}
		if check(r); r.text != want || r.fatal {
			t.Errorf("got %s\nwant %s", r.text, want)
		}
	}
	r := &recorder{}
	testkit.NoError(r, testkit.Err(strings.NewReader("").ReadByte()), "a slow worker")
	if r.text != "a slow worker: EOF" || !r.fatal {
		t.Errorf("got %s, fatal %t", r.text, r.fatal)
	}
}

func TestMust(t *testing.T) {
	testkit.Equal(t, testkit.Must(strings.NewReader("a").ReadByte()), 'a')
	defer func() { testkit.Equal(t, recover(), any(io.EOF)) }()
	testkit.Must(strings.NewReader("").ReadByte())
}

func TestChecks_Pass(t *testing.T) {
	wrapped := fmt.Errorf("cannot read: %w", io.EOF)
	testkit.NoError(t, nil)
	testkit.Equal(t, "a", "a")
	testkit.NotEqual(t, "a", "b")
	testkit.AtLeast(t, 2, 2)
	testkit.AtMost(t, 2, 2)
	testkit.SlicesEqual(t, []int{}, nil)
	testkit.DeepEqual(t, map[string][]int{"a": {1}}, map[string][]int{"a": {1}})
	testkit.Len(t, map[string]int{"a": 1}, 1)
	testkit.Between(t, 2, 2, 3)
	testkit.Between(t, 3, 2, 3)
	testkit.HasPrefix(t, "abc", "ab")
	testkit.Contains(t, "abc", "b")
	testkit.NotContains(t, "abc", "d")
	testkit.Count(t, "abcb", "b", 2)
	testkit.Count(t, "abc", "d", 0)
	testkit.ErrorContains(t, wrapped, "cannot read")
	testkit.ErrorSatisfies(t, os.ErrNotExist, os.IsNotExist)
	testkit.ErrorIs(t, wrapped, io.EOF)
}
