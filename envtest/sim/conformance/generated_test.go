// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the seed of the first generated script")
	ops       = flag.Int("ops", 600, "the number of generated operations")
	ownerOps  = flag.Int("owners", 60, "the number of generated operations on owners and dependents")
	parallel  = flag.Int("scripts", 16, "the number of generated scripts that run at once")
)

// perCluster is the number of operations after which a new cluster replaces the real one, so that
// what scripts leave behind does not slow it down.
const perCluster = 200_000

// endStates is how often a script on owners that differs is repeated. See steady.
const endStates = 10

// maxFailures is the number of scripts that may fail to run before the search ends.
const maxFailures = 10

// class is a kind of difference.
type class struct {
	count   int
	seed    uint64
	example script
	lines   string
}

// search runs generated scripts and collects their differences.
type search struct {
	cluster  *cluster
	generate func(seed uint64) script
	host     string
	client   *http.Client
	repeats  int // of a script that differs, before it counts

	mu       sync.Mutex // guards what follows
	next     uint64
	left     int
	done     int
	classes  map[string]*class
	failures []error // scripts that did not run on the real server
}

// TestV1_GeneratedOperationsHaveTheSameResponses runs scripts of consecutive seeds. It shrinks the
// first of each class of differences to a short script, which can be pasted into testdata.
func TestV1_GeneratedOperationsHaveTheSameResponses(t *testing.T) {
	(&search{cluster: plain, generate: generate}).all(t, *ops)
}

// TestV1_GeneratedOwnersHaveTheSameEndStates is the same for owners and dependents. It compares the
// states after the garbage collector has done its work.
func TestV1_GeneratedOwnersHaveTheSameEndStates(t *testing.T) {
	(&search{cluster: controlled, generate: generateOwners, repeats: endStates}).all(t, *ownerOps)
}

// all runs scripts of n operations.
func (s *search) all(t *testing.T, n int) {
	t.Helper()
	s.next, s.classes = *firstSeed, map[string]*class{}
	if n == 0 {
		t.Skip("there are no operations to run")
	}
	begin := time.Now()
	for s.done < n && len(s.failures) < maxFailures {
		if s.host, s.client = s.cluster.start(t); s.done == 0 {
			begin = time.Now()
		}
		s.left = min(perCluster, n-s.done)
		var running sync.WaitGroup
		for range *parallel {
			running.Go(func() { s.run(t) })
		}
		running.Wait()
		t.Logf("%d operations, %.0f a second, %d classes of differences", s.done, float64(s.done)/time.Since(begin).Seconds(), len(s.classes))
		if s.done < n {
			testkit.NoError(t, s.cluster.stop())
		}
	}
	for _, err := range s.failures {
		t.Error(err)
	}
	s.report(t)
}

// take returns the next script, or false at the end.
func (s *search) take() (script, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left <= 0 || len(s.failures) >= maxFailures {
		return script{}, 0, false
	}
	seed := s.next
	s.next++
	one := s.generate(seed)
	s.left -= len(one.steps)
	s.done += len(one.steps)
	return one, seed, true
}

func (s *search) run(t *testing.T) {
	for {
		one, seed, ok := s.take()
		if !ok {
			return
		}
		found, err := compare(t.Context(), s.host, s.client, one)
		if err == nil && len(found) > 0 && s.repeats > 0 {
			found = s.steady(t, one, found)
		}
		s.mu.Lock()
		if err != nil {
			s.failures = append(s.failures, fmt.Errorf("%s: %w", one.name, err))
		}
		for _, d := range found[:min(1, len(found))] { // later ones follow from the first
			name := d.class(one)
			if s.classes[name] == nil {
				s.classes[name] = &class{seed: seed, example: one, lines: d.in(one)}
				t.Logf("seed %d differs, before it is shrunk: %s", seed, d.in(one))
			}
			s.classes[name].count++
		}
		s.mu.Unlock()
	}
}

// steady returns no differences if the real server also reaches the sim's end states: its garbage
// collector attempts several objects at once, so some scripts have more than one end state.
func (s *search) steady(t *testing.T, one script, found []difference) []difference {
	for range s.repeats {
		again, err := compare(t.Context(), s.host, s.client, one)
		if err == nil && len(again) == 0 {
			t.Logf("%s has several end states on the real server, one of them the sim's: %s", one.name, found[0].in(one))
			return nil
		}
	}
	return found
}

// class returns what similar differences have in common.
func (d difference) class(s script) string {
	if d.step >= len(s.steps) {
		return "events " + firstWords(d.lines)
	}
	one := s.steps[d.step]
	return one.method + " " + strings.Join(one.options, " ") + " " + plural(one.target) + " " + firstWords(d.lines)
}

// firstWords returns the paths of a difference.
func firstWords(lines []string) string {
	var words []string
	for _, line := range lines {
		word, _, _ := strings.Cut(line, "\n")
		words = append(words, word)
	}
	return strings.Join(words[:min(3, len(words))], " ")
}

// maxReports bounds the number of classes that are shrunk and printed.
const maxReports = 25

func (s *search) report(t *testing.T) {
	t.Helper()
	var names []string
	for name := range s.classes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return s.classes[b].count - s.classes[a].count })
	for i, name := range names {
		c := s.classes[name]
		if i >= maxReports {
			t.Errorf("%d times, first with -seed=%d: %s", c.count, c.seed, name)
			continue
		}
		short, lines := s.shrink(t, c.example, name, c.lines)
		t.Errorf("%d times, first with -seed=%d: %s\n%s\n%s", c.count, c.seed, name, short, lines)
	}
}

// shrink removes steps as long as a difference of the class remains.
func (s *search) shrink(t *testing.T, from script, name, lines string) (script, string) {
	t.Helper()
	for size := len(from.steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(from.steps); {
			less := from
			less.steps = slices.Delete(slices.Clone(from.steps), at, at+size)
			found, err := compare(t.Context(), s.host, s.client, less)
			if err != nil || len(found) == 0 || found[0].class(less) != name {
				at += size
				continue
			}
			from, lines = less, found[0].in(less)
		}
	}
	return from, lines
}

// TestGenerateIsPure shows that a seed repeats its script, and that the text form of a script is
// complete.
func TestGenerateIsPure(t *testing.T) {
	for seed := range uint64(200) {
		makes := []func(uint64) script{generate, generateOwners}[seed%2]
		one := makes(seed)
		testkit.Equal(t, one.String(), makes(seed).String(), "seed", seed)
		testkit.Equal(t, parseScripts(one.String())[0].String(), one.String(), "seed", seed)
	}
}
