// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook/certs"
)

// Certificates returns Setpoint's options for certificates that rotate every 4 seconds.
func Certificates(namespace string) certs.Options {
	return certs.Options{
		Secret: types.NamespacedName{Namespace: namespace, Name: "lamps-ca"}, DNSNames: []string{"127.0.0.1"},
		Targets: func() []certs.Target {
			return []certs.Target{{Kind: certs.Validating, Name: Configuration}, {Kind: certs.CustomResourceDefinition, Name: Definition}}
		},
		CALifetime: 8 * time.Second, LeafLifetime: 8 * time.Second, Skew: 100 * time.Millisecond, Propagation: 1500 * time.Millisecond,
	}
}

// Setpoint is a replica with the certificates of package certs, until ctx ends. It prints its
// address to out when it is ready.
func Setpoint(ctx context.Context, c *client.Client, o certs.Options, out io.Writer) error {
	managed := certs.New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{Name: "webhook server", Listener: l, GetCertificate: managed.GetCertificate, DisableHTTP2: true})
	if err == nil {
		err = s.Handle("/", Handler())
	}
	if err == nil {
		err = s.Open(ctx)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { _ = s.Serve(ctx, ctx) })
	running.Go(func() { _ = managed.Run(ctx, c, nil) })
	for managed.Check(ctx) != nil { // as the kubelet does
		select {
		case <-ctx.Done():
			return managed.Check(context.WithoutCancel(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	_, err = fmt.Fprintln(out, "ready", l.Addr())
	<-ctx.Done()
	return err
}
