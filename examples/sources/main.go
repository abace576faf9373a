// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command sources runs a controller on events that do not come from an API server. It keeps a
// checksum next to each file of a directory. A Ticker polls the directory every ten seconds; a
// Channel brings the names that you type. It needs no cluster, and so no manager:
//
//	go run ./examples/sources -dir /tmp/files
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/source"
)

const interval, extension = 10 * time.Second, ".sha256"

func main() {
	dir := flag.String("dir", ".", "`directory` of the files")
	flag.Parse()
	root, err := os.OpenRoot(*dir)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	c, requests := program(root)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if err := requests.Send(ctx, lines.Text()); err != nil {
				return
			}
		}
	}()
	err = c.Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// program returns the controller, and the Channel that makes files due. Its keys are their names.
func program(root *os.Root) (*controller.Controller[string], *source.Channel[string, string]) {
	f := files{root}
	requests := source.NewChannel("requests", 100, func(ctx context.Context, line string) ([]string, error) {
		if line == "" {
			return f.list(ctx) // an event may make many keys due
		}
		return []string{path.Base(line)}, nil
	})
	c := controller.New("checksums", f, controller.Options{})
	c.Watch(requests)
	c.Watch(source.Ticker("directory", interval, f.list))
	return c, requests
}

type files struct{ dir *os.Root }

// list returns the name of each file, also if only its checksum is left.
func (f files) list(context.Context) (names []string, err error) {
	entries, err := fs.ReadDir(f.dir.FS(), ".")
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, strings.TrimSuffix(e.Name(), extension))
		}
	}
	return names, err
}

// Reconcile is the same for both sources: it compares what is there with what should be there.
func (f files) Reconcile(_ context.Context, name string) (controller.Result, error) {
	data, err := f.dir.ReadFile(name)
	switch {
	case err == nil:
		err = f.dir.WriteFile(name+extension, fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(data), name), 0o600)
	case errors.Is(err, fs.ErrNotExist):
		if err = f.dir.Remove(name + extension); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return controller.Result{}, err // retried with backoff
}
