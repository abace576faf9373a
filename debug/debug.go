// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

// Options configures [Add].
type Options struct {
	// Address is a loopback address, such as localhost:6060. Default: empty, Add does nothing.
	Address string
	// Actions allows to requeue, pause and resume keys with POST requests, and shows buttons for
	// them on the page. Default: false, the server only reads.
	Actions bool
	// Values allows answers to have values of objects, except of Secrets: /debug/trace, and in
	// /debug/why the values of fields in hot loops and fights, and metadata of objects whose kind
	// no controller watches. Default: false.
	Values bool
}

// Add adds a server to a manager. It serves [Handler] over plain HTTP, without authorization, on a
// loopback address. From another machine, use kubectl port-forward. Run returns an error for an
// address that other machines can reach. A stop ends a CPU profile early.
//
// Requests must name a loopback host, so that no web page in a browser of this machine can read the
// answers.
func Add(m *manager.Manager, o Options) {
	if o.Address == "" {
		return
	}
	s, _ := server.New(server.Options{Name: "debug server", Plain: true, Address: o.Address})
	// Validate has the error of New.
	s.Handle("/debug/", onlyLocal(Handler(m, o)))
	m.AddServer(local{s, o.validate()})
}

func (o *Options) validate() error {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil || isLoopback(host) {
		return nil // server.Listen explains the error
	}
	return fmt.Errorf("debug.Options.Address: %s is no loopback address, and the debug server authorizes no one; "+
		"use localhost:6060, or pass debug.Handler to Authorize of a server of server.Add", o.Address)
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.IsLoopback()
}

func onlyLocal(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !isLoopback(host) {
			http.Error(w, fmt.Sprintf("the request is for the host %q; use localhost", host), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// local is a server whose requests end when a stop begins.
type local struct {
	*server.Server

	wrong error // or nil
}

// Validate implements manager.Server.
func (l local) Validate() error { return errors.Join(l.wrong, l.Server.Validate()) }

// Serve implements manager.Server.
func (l local) Serve(take, _ context.Context) error { return l.Server.Serve(take, take) }

// Handler returns a handler for /debug/ that serves the paths of the package doc. It is safe for
// concurrent use. It is for a server that authorizes its users:
//
//	s := server.Add(mgr, server.Options{})
//	s.Handle("/debug/", s.Authorize(debug.Handler(mgr, debug.Options{})))
//
// They need the verb get on these paths as nonResourceURLs, such as /debug/failing or /debug/*, and
// for actions the verb post. Handler ignores Options.Address.
func Handler(m *manager.Manager, o Options) http.Handler {
	mux := http.NewServeMux()
	for _, action := range actions() {
		mux.Handle("/debug/"+action, sameSite(act(m.Controllers, action, o.Actions)))
	}
	mux.Handle("/debug/why", sameSite(whyKey(m.Controllers, explain(o.Values, m))))
	mux.Handle("/debug/trace", sameSite(&tracer{manager: m, values: o.Values}))
	mux.Handle("/debug/failing", failing(m.Controllers))
	mux.Handle("/debug/rbac", sameSite(rights(m))) // it sends requests
	mux.Handle("/debug/keys", sameSite(keys(m.Controllers)))
	mux.Handle("/debug/stream", sameSite(newStream((&summaries{manager: m, actions: o.Actions}).get)))
	mux.Handle("/debug/{$}", page("page.html", "text/html; charset=utf-8"))
	mux.Handle("/debug/page.css", page("page.css", "text/css; charset=utf-8"))
	mux.Handle("/debug/page.js", page("page.js", "text/javascript; charset=utf-8"))
	for path, h := range map[string]http.Handler{
		"/debug/controllers": controllers(m.Controllers), "/debug/informers": informers(m.Informers),
		"/debug/shards": shards(m.Group()), "/debug/pprof": profiles(),
	} {
		mux.Handle(path+"/", http.StripPrefix(path, h))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("there is nothing at %q; see /debug/, /debug/why, /debug/trace, /debug/failing, /debug/controllers/, /debug/informers/, /debug/shards/, /debug/rbac and /debug/pprof/", r.URL.Path), http.StatusNotFound)
	})
	return mux
}
