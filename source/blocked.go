// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// blockedAfter is the interval at which a source checks whether its handler is still in the same
// call. So a blocked handler is reported after one to two intervals.
const blockedAfter = 5 * time.Second

// calls counts calls of the handler and predicates: two atomic operations per event.
type calls struct{ entered, left atomic.Uint64 }

// stuck reports whether a call is in progress and none has ended since left was before.
func (c *calls) stuck(before uint64) (left uint64, stuck bool) {
	left = c.left.Load()
	return left, c.entered.Load() > left && left == before
}

func (c *calls) watch(ctx context.Context, source string, hooks *hook.Source) {
	if hooks.HandlerBlocked == nil {
		return
	}
	ticker := time.NewTicker(blockedAfter)
	defer ticker.Stop()
	busy, told := false, false
	for before := uint64(0); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		left, stuck := c.stuck(before)
		if stuck && busy && !told {
			where, stack := findCall()
			hooks.HandlerBlocked(hook.SourceBlocked{Source: source, After: blockedAfter, Where: where, Stack: stack})
		}
		told = stuck && (busy || told)
		before, busy = left, c.entered.Load() > left
	}
}

// findCall returns the position of a handler and its goroutine's stack. It may be another source's:
// a stack does not name the source.
func findCall() (where, stack string) {
	for stack := range strings.SplitSeq(run.Stacks(), "\n\n") {
		if frame := callFrame(stack); frame != "" {
			return frame, run.Shorten(stack)
		}
	}
	return "", ""
}

// callFrame returns the function, file and line that a source called in a stack, or "". It skips
// package handler.
func callFrame(stack string) (frame string) {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		name := lines[i]
		if strings.HasPrefix(name, "github.com/setpoint-dev/setpoint/source.(*feed[") && strings.Contains(name, ").ask(") {
			return frame
		}
		if !strings.HasPrefix(name, "github.com/setpoint-dev/setpoint/handler.") {
			file, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
			frame = name[:max(0, strings.LastIndexByte(name, '('))] + " (" + file + ")"
		}
	}
	return ""
}
