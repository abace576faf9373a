// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/admission"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/controllers"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/conversion"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/fieldmanager"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/load"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/verbs"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// Host is the server's pretended address.
const Host = "https://sim.test"

// Server is an API server. Create it inside the bubble that uses it.
type Server struct {
	rules     *fault.Rules
	transport http.RoundTripper // the rules in front of the inbox
	clients   atomic.Int64      // results of Config
	born      time.Time         // by the wall clock

	store       *store.Store
	controllers *controllers.Controllers
	loader      *load.Loader
	webhooks    *webhook.Webhooks
	api         *verbs.API
	inbox       *inbox
}

// NewServer returns a server that serves the given resources.
func NewServer(resources ...Resource) *Server {
	objects, hooks := store.New(), &webhook.Webhooks{}
	converter := conversion.NewConverter(objects, hooks)
	managers := fieldmanager.NewManagers(objects, converter)
	controllers := controllers.NewControllers(objects, managers)
	s := &Server{
		store: objects, controllers: controllers, webhooks: hooks, born: time.Now().Round(0),
		loader: load.NewLoader(objects, controllers),
		api:    verbs.NewAPI(objects, converter, managers, admission.NewAdmission(objects, converter, hooks), controllers),
	}
	s.inbox = &inbox{store: objects, api: s.api, counts: map[kind]int{}}
	s.rules = fault.NewRules()
	s.transport = s.rules.Transport(s.inbox)
	s.Serve(resources...)
	return s
}

// Config returns a configuration that reaches the server. To restrict a rule to some clients, make
// them from a call of their own, and set fault.Match.Config to its result.
func (s *Server) Config() *rest.Config {
	token := fmt.Sprintf("client-%d", s.clients.Add(1))
	return &rest.Config{Host: Host, Transport: s, QPS: -1, BearerToken: token}
}

// table returns the table of a resource, or nil if it is not served. It needs the store's lock.
func (s *Server) table(of Resource) *store.Table { return s.store.Tables[kinds.Resource(of).GVR()] }

// Serve adds resources without objects. Served resources are not changed.
func (s *Server) Serve(resources ...Resource) {
	s.store.Lock()
	defer s.store.Unlock()
	for _, r := range resources {
		s.controllers.Serve(kinds.Define(kinds.Resource(r)), nil)
	}
}

// Withdraw stops serving resources, as if their CRD was deleted. Their objects are gone, and
// watches end without events about it. Serve brings the resource back empty; a watch that resumes
// is then too old (410).
func (s *Server) Withdraw(resources ...Resource) {
	s.store.Lock()
	defer s.store.Unlock()
	for _, r := range resources {
		if t := s.table(r); t != nil {
			s.store.Withdraw(t)
			s.controllers.Recheck()
		}
	}
}

// Intercept calls f with each request, after the rules of Add and before the server handles it. Use
// Add, unless a test has to look into requests or compute their answers. If f returns nil and nil,
// the server answers. f runs without a lock and may block, but should end with the request's client
// (see Request.Hang). Intercept(nil) ends the interception.
func (s *Server) Intercept(f func(*Request) (*http.Response, error)) {
	s.store.Lock()
	defer s.store.Unlock()
	s.inbox.intercept = f
}

// CutWatches ends all open watches, like a restart of the API server. Clients may resume.
func (s *Server) CutWatches() {
	s.store.Lock()
	defer s.store.Unlock()
	s.store.CutWatches()
}

// Expire forgets all history: a watch from an older version than the newest receives 410. Open
// watches continue.
func (s *Server) Expire() {
	s.store.Lock()
	defer s.store.Unlock()
	for _, t := range s.store.Tables {
		t.Expire(s.store.Version)
	}
}

// Requests returns the last 10,000 requests, including intercepted ones, in the order of their
// arrival.
func (s *Server) Requests() []*Request {
	s.store.Lock()
	defer s.store.Unlock()
	return slices.Clone(s.inbox.log)
}

// Count returns the number of requests with the verb for the resource; "" matches any verb.
func (s *Server) Count(verb string, of Resource) int {
	s.store.Lock()
	defer s.store.Unlock()
	n := 0
	for k, count := range s.inbox.counts {
		if (verb == "" || k.verb == verb) && k.resource == kinds.Resource(of).GVR() {
			n += count
		}
	}
	return n
}

// Lag delays the events of watches by d after the change. Lists are current.
func (s *Server) Lag(d time.Duration) {
	s.store.Lock()
	defer s.store.Unlock()
	s.api.Lag = d
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.store.Lock()
	defer s.store.Unlock()
	return s.api.Watches
}

// Put creates or replaces an object, including its status, as another client's write, and returns
// the stored object. obj is a pointer to an API type. An empty uid or resourceVersion means the
// stored one. Put panics on invalid input.
func (s *Server) Put(in Resource, obj metav1.Object) *unstructured.Unstructured {
	u, err := codec.FromObject(obj, kinds.Resource(in))
	if err != nil {
		panic(err)
	}
	s.store.Lock()
	defer s.store.Unlock()
	t := s.table(in)
	if t == nil {
		panic(fmt.Sprintf("sim: %s is not served; give it to NewServer or Serve", in.Name))
	}
	if t.Namespaced {
		s.controllers.EnsureNamespace(u.GetNamespace())
	}
	if t.IsNamespaces() && rules.NamespacePhase(u) == "" {
		rules.FoundNamespace(u)
	}
	stored := s.store.Put(t, t.Objects[store.KeyOf(u)], u)
	s.controllers.Settle()
	return stored
}

// Remove deletes an object, regardless of finalizers, as another client's write. It reports whether
// the object existed.
func (s *Server) Remove(in Resource, namespace, name string) bool {
	s.store.Lock()
	defer s.store.Unlock()
	t := s.table(in)
	if t == nil {
		return false
	}
	o := t.Objects[store.Key{Namespace: namespace, Name: name}]
	if o == nil {
		return false
	}
	s.store.Remove(t, o)
	s.controllers.Settle()
	return true
}

// Object returns a stored object, or nil.
func (s *Server) Object(in Resource, namespace, name string) *unstructured.Unstructured {
	s.store.Lock()
	defer s.store.Unlock()
	if t := s.table(in); t != nil {
		return t.Objects[store.Key{Namespace: namespace, Name: name}].DeepCopy()
	}
	return nil
}

// Version returns the newest resourceVersion.
func (s *Server) Version() string {
	s.store.Lock()
	defer s.store.Unlock()
	return strconv.FormatInt(s.store.Version, 10)
}

// Stored returns the number of objects of a resource.
func (s *Server) Stored(in Resource) int {
	s.store.Lock()
	defer s.store.Unlock()
	if t := s.table(in); t != nil {
		return len(t.Objects)
	}
	return 0
}

// UseSchemas validates, defaults and prunes custom objects from now on, and evaluates the
// matchConditions of webhooks. It is for package envtest/sim/crd. Call it before Load.
func (s *Server) UseSchemas(with crdschema.Schemas) {
	s.store.Lock()
	defer s.store.Unlock()
	s.store.Schemas = with
	if t := s.store.Tables[kinds.CRDs]; t != nil {
		t.Schema = kinds.CRDSchema{Schemas: with}
	}
}
