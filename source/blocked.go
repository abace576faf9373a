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

// blockedAfter is how often a source looks whether its handler is still in the same call, and so
// after how long it is reported: after once to twice this time.
const blockedAfter = 5 * time.Second

// calls are those of a source's handler and predicates. It costs an event two atomic operations.
type calls struct{ entered, left atomic.Uint64 }

// stuck reports whether a call runs, and none has ended since the last look.
func (c *calls) stuck(before uint64) (left uint64, stuck bool) {
	left = c.left.Load()
	return left, c.entered.Load() > left && left == before
}

// watch reports a handler or a predicate that blocks, once each time, until ctx is done.
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

// findCall returns where a handler is, and the stack of its goroutine. Where several sources call
// theirs at this moment, it may be another source's: a stack does not show whose it is.
func findCall() (where, stack string) {
	for stack := range strings.SplitSeq(run.Stacks(), "\n\n") {
		if frame := callFrame(stack); frame != "" {
			return frame, run.Shorten(stack)
		}
	}
	return "", ""
}

// callFrame returns the function, with file and line, that a source has called in a goroutine's
// stack; empty if there is none. What package handler wraps around it does not count.
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
