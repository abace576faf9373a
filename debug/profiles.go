// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// profiles serves the paths and parameters of net/http/pprof, without changing
// http.DefaultServeMux. A CPU profile or trace ends early with the context of its request, and the
// answer has what was recorded. While one runs, another one gets status 409. Differences of
// profiles and /symbol are missing.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", listProfiles)
	mux.HandleFunc("GET /cmdline", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, strings.Join(os.Args, "\x00"))
	})
	mux.HandleFunc("GET /profile", record("profile", 30*time.Second, pprof.StartCPUProfile, pprof.StopCPUProfile))
	mux.HandleFunc("GET /trace", record("trace", time.Second, trace.Start, trace.Stop))
	mux.HandleFunc("GET /{name}", writeProfile)
	return mux
}

func listProfiles(w http.ResponseWriter, _ *http.Request) {
	names := []string{"cmdline", "profile", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, strings.Join(names, "\n"))
}

func record(name string, length time.Duration, start func(io.Writer) error, stop func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		length := length
		if text := r.FormValue("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds > 0 && seconds <= time.Hour.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds=%s is invalid; use a number of at most 3600", text), http.StatusBadRequest)
				return
			}
			length = time.Duration(seconds * float64(time.Second))
		}
		attach(w, name)
		if err := start(w); err != nil {
			w.Header().Del("Content-Disposition")
			http.Error(w, fmt.Sprintf("cannot start a %s: %v; wait for the one that runs", name, err), http.StatusConflict)
			return
		}
		defer stop()
		select {
		case <-time.After(length):
		case <-r.Context().Done():
		}
	}
}

func writeProfile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	p := pprof.Lookup(name)
	switch {
	case p == nil:
		http.Error(w, fmt.Sprintf("no profile is named %q; GET / lists the names", name), http.StatusNotFound)
		return
	case r.FormValue("seconds") != "":
		http.Error(w, "only profile and trace take seconds; use go tool pprof -diff_base for a difference", http.StatusBadRequest)
		return
	}
	level := 0
	if text := r.FormValue("debug"); text != "" {
		var err error
		if level, err = strconv.Atoi(text); err != nil {
			http.Error(w, fmt.Sprintf("debug=%s is invalid; use 0, 1 or 2", text), http.StatusBadRequest)
			return
		}
	}
	if name == "heap" && r.FormValue("gc") == "1" {
		runtime.GC()
	}
	if level == 0 {
		attach(w, name)
	} else {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	_ = p.WriteTo(w, level) // the client has gone
}

func attach(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
}
