// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
)

// heap measures the live heap of an idle process that keeps all ConfigMaps. An HTTP server in the
// parent streams them, so it needs no control plane. Each holder runs in its own process.
type heap struct {
	objects int
	profile string
	holder  string // in a child: its name
	server  string // in a child: the parent's URL
	same    bool   // in a child: drop managedFields by the common transform
}

func newHeap() *heap {
	p := &heap{}
	flag.IntVar(&p.objects, "kept", 250_000, "heap: `number` of ConfigMaps")
	flag.StringVar(&p.profile, "heap-profile", "", "heap: write heap profiles to this `directory`; they make the heap larger")
	flag.StringVar(&p.holder, "holder", "", "heap: measure the holder of this `name` here (internal)")
	flag.StringVar(&p.server, "server", "", "heap: `URL` of the server (internal)")
	flag.BoolVar(&p.same, "same-transform", false, "heap: drop managedFields by the common transform (internal)")
	return p
}

// holders keep the same objects. The first is the base of the ratios.
var holders = []contestant{
	{"client-go, event handler", holdClientGo},
	{"client-go, queue drained", runClientGo(false)},
	{"setpoint, handle", holdSetpoint},
	{"setpoint, controller", runSetpoint(true)},
}

// run prints the heaps for three combinations of objects and defaults.
func (p *heap) run(w *report, rounds int) {
	for _, c := range []struct {
		title   string
		managed bool // the objects have managedFields
		same    bool
	}{
		{"without managedFields", false, false},
		{"with managedFields, dropped by all", true, true},
		{"with managedFields, each one's defaults", true, false},
	} {
		if err := p.compare(w, rounds, c.title, c.managed, c.same); err != nil {
			w.Flush()
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		w.Flush()
	}
}

func (p *heap) compare(w *report, rounds int, title string, managed, same bool) error {
	server := httptest.NewServer(configMapServer{p.objects, managed})
	defer server.Close()
	results := make([][]float64, len(holders))
	for range rounds {
		for i, h := range holders {
			bytes, err := p.child(h.name, server.URL, same)
			if err != nil {
				return err
			}
			results[i] = append(results[i], bytes)
		}
	}
	fmt.Fprintf(w, "%d small ConfigMaps %s\tlive heap\tper object\tmore than the first\tratio\t\n", p.objects, title)
	base := median(results[0])
	for i, h := range holders {
		m, n := median(results[i]), float64(p.objects)
		fmt.Fprintf(w, "%s\t%.1f MB\t%.0f B\t%.0f B\t%.2f\t\n", h.name, m/1e6, m/n, (m-base)/n, m/base)
	}
	fmt.Fprintln(w)
	return nil
}

func (p *heap) child(name, server string, same bool) (bytes float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "-holder", name, "-server", server, "-kept", strconv.Itoa(p.objects), "-same-transform="+strconv.FormatBool(same),
		"-heap-profile", p.profile)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return bytes, json.Unmarshal(out, &bytes)
}

// main runs in the child and prints the size of its live heap in bytes.
func (p *heap) main() {
	bytes, err := p.measure(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(bytes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *heap) measure(ctx context.Context) (bytes float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	keys = nil // of the queues' measurements
	if p.profile != "" {
		runtime.MemProfileRate = 512
	}
	r := &race{config: &rest.Config{Host: p.server, QPS: -1}, same: p.same, bare: true, all: int64(p.objects), done: make(chan struct{})}
	for _, h := range holders {
		if h.name == p.holder {
			ended := make(chan error, 1)
			go func() { ended <- h.run(ctx, r) }()
			select {
			case <-r.done:
			case err := <-ended:
				return 0, errors.Join(errors.New("the holder ended before it kept all objects"), err)
			}
			if bytes, err = p.live(); err != nil {
				return 0, err
			}
			cancel()
			return bytes, <-ended
		}
	}
	return 0, fmt.Errorf("there is no holder %q", p.holder)
}

// live returns liveHeap, and writes the profile of it that is asked for.
func (p *heap) live() (bytes float64, err error) {
	bytes = liveHeap()
	if p.profile == "" {
		return bytes, nil
	}
	return bytes, writeHeapProfile(filepath.Join(p.profile, fmt.Sprintf("%s same=%t.pprof", p.holder, p.same)))
}

// liveHeap returns the size of the heap once it stops shrinking.
func liveHeap() float64 {
	var s runtime.MemStats
	for last := uint64(1 << 62); last > s.HeapAlloc; {
		if s.HeapAlloc > 0 {
			last = s.HeapAlloc
		}
		time.Sleep(time.Second) // workers settle, buffers are returned
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
	}
	return float64(s.HeapAlloc)
}

func writeHeapProfile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

func holdClientGo(ctx context.Context, r *race) error {
	cfg := rest.CopyConfig(r.config)
	cfg.ContentType = apiruntime.ContentTypeProtobuf
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var options []clientinformers.SharedInformerOption
	if r.same {
		options = append(options, clientinformers.WithTransform(dropManagedFields))
	}
	factory := clientinformers.NewSharedInformerFactoryWithOptions(c, 0, options...)
	count := toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if m, ok := obj.(*corev1.ConfigMap); ok {
			_ = r.reconciled(m)
		}
	}}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(count); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// holdSetpoint has a handle without watchers.
func holdSetpoint(ctx context.Context, r *race) error {
	c, err := client.New(r.config, client.Options{})
	if err != nil {
		return err
	}
	informers := cache.New(c, cache.Options{})
	objects := cache.For[*corev1.ConfigMap](informers)
	return runWithCache(ctx, informers, func(ctx context.Context) error {
		if err := objects.WaitForSync(ctx); err != nil {
			return err
		}
		close(r.done)
		<-ctx.Done()
		return nil
	})
}

// configMapServer streams small ConfigMaps as protobuf, then sends nothing.
type configMapServer struct {
	objects int
	managed bool
}

// ServeHTTP implements http.Handler. It serves discovery and the streamed initial list.
func (s configMapServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/configmaps" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}},
		})
		return
	}
	w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf+";stream=watch")
	if err := s.stream(w); err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		return
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func (s configMapServer) stream(w http.ResponseWriter) error {
	info, _ := apiruntime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme.Scheme).SupportedMediaTypes(), apiruntime.ContentTypeProtobuf)
	objects := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	events := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w), info.StreamSerializer.Serializer)
	send := func(what string, m *corev1.ConfigMap) error {
		raw, err := apiruntime.Encode(objects, m)
		if err != nil {
			return err
		}
		return events.Encode(&metav1.WatchEvent{Type: what, Object: apiruntime.RawExtension{Raw: raw}})
	}
	for i := range s.objects {
		if err := send("ADDED", s.object(i)); err != nil {
			return err
		}
	}
	end := &corev1.ConfigMap{}
	end.ResourceVersion, end.Annotations = strconv.Itoa(10_000_000), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return send("BOOKMARK", end)
}

// object returns an object with only metadata, including a UID of 36 bytes.
func (s configMapServer) object(i int) *corev1.ConfigMap {
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name, m.ResourceVersion = namespaceOf(i), objectOf(i), strconv.Itoa(1_000_000+i)
	m.UID = types.UID(fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i))
	m.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	if s.managed {
		m.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "bench", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &m.CreationTimestamp, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:text":{}}}`),
		}}
	}
	return m
}
