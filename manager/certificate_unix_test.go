// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package manager_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// pipe replaces a file with a named pipe.
func (s *secret) pipe(file string) {
	s.t.Helper()
	s.must(os.Remove(filepath.Join(s.dir, file)))
	s.must(syscall.Mkfifo(filepath.Join(s.dir, file), 0o600))
}

func TestANamedPipeInThePlaceOfACertificateBlocksNoHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		files, w := newSecret(t), newWire()
		one := newPair(t, "one", time.Hour)
		files.put(one.cert, one.key, nil)
		m, health := healthy(t, newAPI(), func(o *manager.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		addServer(m, serverOptions{Listener: w, CertDir: files.dir})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		files.pipe("tls.crt")
		for range 3 {
			testkit.Pass(time.Second)
			got, err := shake(w, &tls.Config{}, t)
			testkit.Equal(t, got, "one", "the server shows", err)
		}
		sentence := "cannot read the TLS files: " + files.dir + "/tls.crt is not a regular file (prw-------); put a PEM file there"
		want(t, health, "http://x/readyz?verbose", 200, "[+]informers ok", "[+]certificate-server ok: the certificate that expires at 2000-01-01T01:00:00Z stays in use: "+sentence, "[+]shutdown ok", "readyz check passed")
		testkit.Count(t, log.String(), sentence, 1)
		stop()
		ok(t, result())
	})
}

func TestFilesThatAreNoFilesAtTheStart(t *testing.T) {
	files := newSecret(t)
	one := newPair(t, "one", time.Hour)
	in := func(file string) string { return filepath.Join(files.dir, file) }
	run := func(want string) {
		t.Helper()
		m := newManager(newAPI(), nil)
		addServer(m, serverOptions{Address: "127.0.0.1:0", CertDir: files.dir, ClientCAFile: in("ca.crt")})
		testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), `the manager "test" cannot run: the server: cannot read the TLS files: `+want, "Run returned")
	}
	files.put(one.cert, one.key, make([]byte, 1<<20+1))
	run(in("ca.crt") + " has 1048577 bytes, at most 1048576 are read; put a PEM file there")
	files.pipe("ca.crt")
	run(in("ca.crt") + " is not a regular file (prw-------); put a PEM file there")
	files.must(os.Remove(in("tls.key")))
	files.must(os.Mkdir(in("tls.key"), 0o700))
	run(in("tls.key") + " is not a regular file (drwx------); put a PEM file there")
}
