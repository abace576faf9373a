// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

// Host is the server's pretended address.
const Host = "https://sim.test"

// Server is an API server. Create it inside the bubble that uses it.
type Server struct {
	rules     *fault.Rules
	transport http.RoundTripper // the rules in front of handle
	clients   atomic.Int64      // results of Config
	born      time.Time         // by the wall clock

	mu          sync.Mutex // guards the fields below
	tables      map[schema.GroupVersionResource]*table
	version     int64 // the newest resourceVersion of all kinds
	uids        int   // how many were given out
	addresses   rules.Addresses
	names       int        // how many were generated
	log         []*Request // the newest ones
	counts      map[kind]int
	intercept   func(*Request) (*http.Response, error)
	cut         chan struct{} // closed and replaced to end all watches
	watches     int
	silent      bool // no bookmarks
	graph       *graph
	terminating map[string]bool // the namespaces that are being deleted; true: one that changed
	webhooks    http.Handler    // of UseWebhooks
	reviews     int             // how many were sent to webhooks
	current     *Request        // the one that is served; nil while its consequences are settled
	unanswered  error           // see versions
	hooks       map[schema.GroupVersionResource]hooks
	lag         time.Duration

	schemas     crdschema.Schemas // of CustomResourceDefinitions; nil: no checks of custom objects
	crdsChanged bool              // CustomResourceDefinitions have to be settled
	crdStores   map[string]*store // by name of the CustomResourceDefinition
}

// keptRequests is how many requests Server.Requests returns at most.
const keptRequests = 10_000

// kind is what Server.Count distinguishes.
type kind struct {
	verb     string
	resource schema.GroupVersionResource
}

// NewServer returns a server that serves the given resources.
func NewServer(resources ...Resource) *Server {
	s := &Server{
		tables: map[schema.GroupVersionResource]*table{}, version: 1, counts: map[kind]int{},
		cut: make(chan struct{}), graph: newGraph(), terminating: map[string]bool{}, born: time.Now().Round(0),
		hooks: map[schema.GroupVersionResource]hooks{},
	}
	s.rules = fault.NewRules()
	s.transport = s.rules.Transport(handler(s.handle))
	s.Serve(resources...)
	return s
}

// Config returns a configuration that reaches the server. To restrict a rule to some clients, make
// them from a call of their own, and set fault.Match.Config to its result.
func (s *Server) Config() *rest.Config {
	token := fmt.Sprintf("client-%d", s.clients.Add(1))
	return &rest.Config{Host: Host, Transport: s, QPS: -1, BearerToken: token}
}

// Serve adds resources without objects. Served resources are not changed.
func (s *Server) Serve(resources ...Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		s.serveKindLocked(kinds.Define(kinds.Resource(r)), nil)
	}
}

// serveKindLocked adds a resource that is not served yet. If it is another version of a served one,
// with is that version's store.
func (s *Server) serveKindLocked(d kinds.Definition, with *store) *table {
	if t := s.tables[d.GVR()]; t != nil {
		return t
	}
	if with == nil {
		with = newStore(d.GVK(), s.version)
	}
	t := &table{Definition: d, store: with, gone: make(chan struct{})}
	s.tables[d.GVR()] = t
	if t.IsNamespaces() {
		s.foundLocked(t)
	}
	return t
}

// Withdraw stops serving resources, as if their CRD was deleted. Their objects are gone, and
// watches end without events about it. Serve brings the resource back empty; a watch that resumes
// is then too old (410).
func (s *Server) Withdraw(resources ...Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		if t := s.tables[kinds.Resource(r).GVR()]; t != nil {
			s.version += int64(len(t.objects)) // one deletion each
			delete(s.tables, kinds.Resource(r).GVR())
			for _, o := range t.sorted() {
				s.graph.forget(o.GetUID())
			}
			close(t.gone)
			s.changedLocked()
		}
	}
}

// Intercept calls f with each request, after the rules of Add and before the server handles it. Use
// Add, unless a test has to look into requests or compute their answers. If f returns nil and nil,
// the server answers. f runs without a lock and may block, but should end with the request's client
// (see Request.Hang). Intercept(nil) ends the interception.
func (s *Server) Intercept(f func(*Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// CutWatches ends all open watches, like a restart of the API server. Clients may resume.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Expire forgets all history: a watch from an older version than the newest receives 410. Open
// watches continue.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.expire(s.version)
	}
}

// Requests returns the last 10,000 requests, including intercepted ones, in the order of their
// arrival.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Count returns the number of requests with the verb for the resource; "" matches any verb.
func (s *Server) Count(verb string, of Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for k, count := range s.counts {
		if (verb == "" || k.verb == verb) && k.resource == kinds.Resource(of).GVR() {
			n += count
		}
	}
	return n
}

// Silence disables the bookmarks of watches that start from now on. Other watches get one a minute.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// Lag delays the events of watches by d after the change. Lists are current.
func (s *Server) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = d
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Put creates or replaces an object, including its status, as another client's write, and returns
// the stored object. obj is a pointer to an API type. An empty uid or resourceVersion means the
// stored one. Put panics on invalid input.
func (s *Server) Put(in Resource, obj metav1.Object) *unstructured.Unstructured {
	u, err := codec.FromObject(obj, kinds.Resource(in))
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[kinds.Resource(in).GVR()]
	if t == nil {
		panic(fmt.Sprintf("sim: %s is not served; give it to NewServer or Serve", in.Name))
	}
	if namespaces := s.tables[kinds.Namespaces.GVR()]; namespaces != nil && t.Namespaced {
		s.ensureNamespaceLocked(namespaces, u.GetNamespace())
	}
	if t.IsNamespaces() && rules.NamespacePhase(u) == "" {
		rules.FoundNamespace(u)
	}
	stored := s.storeLocked(t, t.objects[keyOf(u)], u)
	s.settleLocked()
	return stored
}

// Remove deletes an object, regardless of finalizers, as another client's write. It reports whether
// the object existed.
func (s *Server) Remove(in Resource, namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[kinds.Resource(in).GVR()]
	if t == nil || t.objects[key{namespace, name}] == nil {
		return false
	}
	s.removeLocked(t, t.objects[key{namespace, name}])
	s.settleLocked()
	return true
}

// Object returns a stored object, or nil.
func (s *Server) Object(in Resource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[kinds.Resource(in).GVR()]; t != nil && t.objects[key{namespace, name}] != nil {
		return t.objects[key{namespace, name}].DeepCopy()
	}
	return nil
}

// Version returns the newest resourceVersion.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.FormatInt(s.version, 10)
}

// Stored returns the number of objects of a resource.
func (s *Server) Stored(in Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[kinds.Resource(in).GVR()]; t != nil {
		return len(t.objects)
	}
	return 0
}

// UseSchemas validates, defaults and prunes custom objects from now on, and evaluates the
// matchConditions of webhooks. It is for package envtest/sim/crd. Call it before Load.
func (s *Server) UseSchemas(with crdschema.Schemas) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas = with
	if t := s.tables[kinds.CRDs]; t != nil {
		t.Schema = kinds.CRDSchema{Schemas: with}
	}
}
