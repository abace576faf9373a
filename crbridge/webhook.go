// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/setpoint-dev/setpoint/server"
)

// webhookServer serves the handlers and the metrics of controller-runtime's webhook server on a
// server of Setpoint.
type webhookServer struct {
	*webhook.DefaultServer
	*server.Server // nil: disabled

	mux  *http.ServeMux
	open atomic.Bool
}

// newWebhookServer returns a server with the options of s. An implementation of the program's own
// runs as it is.
func (b *Bridge) newWebhookServer(s webhook.Server) (webhook.Server, error) {
	theirs, ok := s.(*webhook.DefaultServer)
	if !ok {
		return s, nil
	}
	theirs.Options.WebhookMux = cmp.Or(theirs.Options.WebhookMux, http.NewServeMux())
	w := &webhookServer{DefaultServer: theirs, mux: theirs.Options.WebhookMux}
	if theirs.Options.Port < 0 {
		return w, nil
	}
	o, err := webhookOptions(theirs.Options, b.options.Logger)
	if err != nil {
		return nil, err
	}
	if w.Server, err = server.New(o); err != nil {
		return nil, fmt.Errorf("crbridge: the webhook server: %w", err)
	}
	w.Handle("/", http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mux.ServeHTTP(out, r.WithContext(b.based(r.Context())))
	}))
	return w, nil
}

// webhookOptions maps the options. Some API servers keep connections and do not repeat a request
// that a closed one has lost, so the server lingers.
func webhookOptions(o webhook.Options, l logr.Logger) (server.Options, error) {
	own := server.Options{
		Name: "webhook server", Address: net.JoinHostPort(o.Host, strconv.Itoa(cmp.Or(o.Port, webhook.DefaultPort))),
		DisableHTTP2: true, Linger: time.Second,
	}
	config := &tls.Config{NextProtos: []string{"h2"}}
	for _, change := range o.TLSOpts {
		change(config)
	}
	if err := unmapped(config); err != nil {
		return own, err
	}
	remark(l, config.MinVersion > 0 && config.MinVersion < tls.VersionTLS12, "webhook.Options.TLSOpts: MinVersion", "the lowest version is TLS 1.2")
	if own.MinTLSVersion = max(config.MinVersion, tls.VersionTLS12); own.MinTLSVersion == tls.VersionTLS12 {
		own.CipherSuites = suites(config.CipherSuites)
	}
	dir := cmp.Or(o.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"))
	if own.GetCertificate = config.GetCertificate; own.GetCertificate == nil {
		own.CertFile, own.KeyFile = filepath.Join(dir, cmp.Or(o.CertName, "tls.crt")), filepath.Join(dir, cmp.Or(o.KeyName, "tls.key"))
	}
	if o.ClientCAName != "" {
		own.ClientCAFile = filepath.Join(dir, o.ClientCAName)
	}
	if own.GetCertificate != nil && own.ClientCAFile != "" {
		return own, errors.New("crbridge: webhook.Options has a ClientCAName, and its TLSOpts set GetCertificate; remove GetCertificate, changed files are used at once")
	}
	return own, nil
}

// suites returns the cipher suites of TLS 1.2, or nil. Go ignores other ones.
func suites(all []uint16) (used []uint16) {
	for _, id := range all {
		if id>>8 != tls.TLS_AES_128_GCM_SHA256>>8 {
			used = append(used, id)
		}
	}
	return used
}

// unmapped returns an error if TLSOpts have set a field that the server does not have: without it,
// the server could be less strict.
func unmapped(config *tls.Config) error {
	mapped := []string{"GetCertificate", "MinVersion", "CipherSuites", "NextProtos"}
	var wrong []error
	v := reflect.ValueOf(config).Elem()
	for i, f := range reflect.VisibleFields(v.Type()) {
		switch {
		case !f.IsExported() || v.Field(i).IsZero() || slices.Contains(mapped, f.Name):
		case f.Name == "ClientAuth" || f.Name == "ClientCAs":
			wrong = append(wrong, fmt.Errorf("crbridge: webhook.Options.TLSOpts set %s, which has no counterpart; set ClientCAName", f.Name))
		default:
			wrong = append(wrong, fmt.Errorf("crbridge: webhook.Options.TLSOpts set %s, which has no counterpart; remove it", f.Name))
		}
	}
	return errors.Join(wrong...)
}

// addWebhooks adds a result of newWebhookServer. During Start, the manager takes only functions.
func (b *Bridge) addWebhooks(s webhook.Server) {
	w, ok := s.(*webhookServer)
	b.mu.Lock()
	started := b.stopping != nil
	b.mu.Unlock()
	if !ok || started || w.Server == nil {
		b.everywhere(s)
		return
	}
	b.manager.AddServer(w)
	b.mu.Lock()
	b.servers++
	name := "certificate-webhook-server"
	if b.servers > 1 {
		name = fmt.Sprintf("%s-%d", name, b.servers)
	}
	b.mu.Unlock()
	b.manager.AddReadyzCheck(name, func(context.Context) error { return w.CheckCertificate() })
}

// WebhookMux returns the handlers. Unlike controller-runtime's, it is never nil.
func (w *webhookServer) WebhookMux() *http.ServeMux { return w.mux }

// Open implements manager.Server.
func (w *webhookServer) Open(ctx context.Context) error {
	err := w.Server.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; mount the Secret of the certificate there, or set webhook.Options.CertDir", err)
	}
	w.open.Store(err == nil)
	return err
}

// Start runs a server that was added during Start of the manager, or in a test. The error for a
// missing file is the one of package os: os.IsNotExist, which tests use, does not unwrap.
func (w *webhookServer) Start(ctx context.Context) error {
	if w.Server == nil {
		return nil
	}
	if err := w.Open(ctx); err != nil {
		if missing := new(fs.PathError); errors.As(err, &missing) {
			return missing
		}
		return fmt.Errorf("%s: %w", w, err)
	}
	return w.Serve(ctx, ctx)
}

// StartedChecker fails until the server listens.
func (w *webhookServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if w.Server == nil || w.open.Load() {
			return nil
		}
		return errors.New("the webhook server has not been started yet")
	}
}
