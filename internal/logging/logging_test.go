// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOf(t *testing.T) {
	testkit.Equal(t, logging.Of(t.Context()), slog.Default(), "without a logger in the context it is not the default")
	var out bytes.Buffer
	own := slog.New(slog.NewTextHandler(&out, nil))
	logging.Of(logr.NewContextWithSlogLogger(t.Context(), own)).Info("hello")
	testkit.NotEqual(t, out.Len(), 0, "the logger of the context is not used")
}

// counting counts how often its attributes are formatted.
type counting int

func (c *counting) LogAttrs() []slog.Attr {
	*c++
	return []slog.Attr{slog.String("key", "a")}
}

func TestLazy_FormatsAttributesForALineOnly(t *testing.T) {
	var out bytes.Buffer
	var formatted counting
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(&logging.Lazy{Base: slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: plain}), Of: &formatted})
	log.Debug("not enabled")
	testkit.Equal(t, formatted, 0, "attributes were formatted without a line")
	log.Info("one", "n", 1)
	log.With("m", 2).Info("two")
	log.WithGroup("g").Info("three", "n", 3)
	const want = "level=INFO msg=one key=a n=1\nlevel=INFO msg=two key=a m=2\nlevel=INFO msg=three key=a g.n=3\n"
	testkit.Equal(t, out.String(), want, "the lines")
}

// TestOnce: many lines of one kind do not use up what other kinds may log.
func TestOnce(t *testing.T) {
	var r logging.Repetition
	logged := 0
	for n := range 200 {
		for range 2 {
			if r.Once("hot", strconv.Itoa(n)) {
				logged++
			}
		}
	}
	testkit.Equal(t, logged, 100, "lines for 200 keys")
	for _, words := range [][]string{nil, {"a", "b"}, {"a", "c"}} {
		if first, again := r.Once("late", words...), r.Once("late", words...); !first || again {
			t.Errorf("of another kind, %q is logged %t, and then %t", words, first, again)
		}
	}
}

// TestFew: many causes of one kind share a limit, and other kinds keep theirs.
func TestFew(t *testing.T) {
	var r logging.Repetition
	logged := 0
	for n := range 200 {
		if _, ok := r.Few("failed", strconv.Itoa(n)); ok {
			logged++
		}
	}
	if logged != 110 { // one of each of 100 causes, and ten of all others
		t.Errorf("%d lines for 200 causes", logged)
	}
	for n := range 20 {
		if _, ok := r.Few("slow", ""); ok != (n < 10) {
			t.Errorf("line %d of another kind is logged: %t", n+1, ok)
		}
	}
}
