// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

type apiServerConfig struct {
	Etcd string `json:"etcd"`
	// Listen is 127.0.0.1:0 at first, the same port after a restart.
	Listen string `json:"listen"`
	// CA signs client certificates; Cert and Key are the server's. All are PEM.
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
	// TokenKey is the file with the key that signs service account tokens.
	TokenKey string `json:"tokenKey"`
	// ServiceAccounts means that a controller creates service accounts, so admission can require
	// them.
	ServiceAccounts bool `json:"serviceAccounts"`
	// Args are additional command line flags.
	Args []string `json:"args"`
}

func runAPIServer(p *pipe) error {
	var c apiServerConfig
	if err := p.read(&c); err != nil {
		return err
	}
	// Listen first: clients that know the address can then connect and wait.
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("kube-apiserver cannot listen: %w", err)
	}
	// All state is in etcd, so it can simply exit.
	go func() { p.wait(); os.Exit(0) }()

	s, err := apiServerOptions(c)
	if err != nil {
		return err
	}
	ctx := context.Background()
	completed, err := s.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if err := serveOn(completed.SecureServing, listener, c); err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	p.serving(listener.Addr().String())
	return app.Run(ctx, completed)
}

func apiServerOptions(c apiServerConfig) (*options.ServerRunOptions, error) {
	s := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	args := []string{
		"--etcd-servers=" + c.Etcd,
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // an Endpoints object may not name a loopback address
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + c.TokenKey,
		"--service-account-key-file=" + c.TokenKey,
	}
	if !c.ServiceAccounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if err := flags.Parse(append(args, c.Args...)); err != nil {
		return nil, fmt.Errorf("kube-apiserver: wrong argument in Options.APIServerArgs: %w", err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("kube-apiserver: wrong argument in Options.APIServerArgs: %q is not a flag", flags.Arg(0))
	}
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	s.SecureServing.BindPort = 0 // until serveOn, after completion
	var err error
	s.Authentication.ClientCert.CAContentProvider, err = dynamiccertificates.NewStaticCAContent("client-ca", c.CA)
	return s, err
}

// serveOn makes the server use our listener and certificate. Completing options that have a
// listener generates another certificate, which takes 0.1 s and replaces ours.
func serveOn(s *serveroptions.SecureServingOptionsWithLoopback, listener net.Listener, c apiServerConfig) error {
	address := listener.Addr().(*net.TCPAddr)
	s.Listener, s.BindAddress, s.BindPort = listener, address.IP, address.Port
	var err error
	s.ServerCert.GeneratedCert, err = dynamiccertificates.NewStaticCertKeyContent("serving", c.Cert, c.Key)
	return err
}
