// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Config returns a copy of the configuration with all permissions and without client-side rate
// limiting.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor returns the configuration of a user in the given groups and in system:authenticated.
// The client uses a client certificate, or impersonation on an existing cluster. Without a role,
// the user has no permissions. An empty user is an error.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	if user == "" {
		return nil, errors.New("envtest: ConfigFor needs the name of a user")
	}
	cfg := c.Config()
	if c.ca == nil {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return cfg, nil
	}
	pair, err := c.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	cfg.CertData, cfg.KeyData = pair.cert, pair.key
	return cfg, nil
}

// Kubeconfig returns a kubeconfig for Config, for programs that need a file. On an existing
// cluster, it reads the file of Options.Kubeconfig, which may fail.
func (c *Cluster) Kubeconfig() ([]byte, error) {
	if c.plane == nil {
		return os.ReadFile(c.options.Kubeconfig)
	}
	return clientcmd.Write(kubeconfig(c.config.Host, c.config.CAData, keyPair{c.config.CertData, c.config.KeyData}))
}

func kubeconfig(host string, ca []byte, user keyPair) api.Config {
	const name = "envtest"
	return api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: host, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*api.AuthInfo{name: {ClientCertificateData: user.cert, ClientKeyData: user.key}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

// WriteKubeconfig writes Kubeconfig to a file that only this user can read. The error names the
// file.
func (c *Cluster) WriteKubeconfig(path string) error {
	content, err := c.Kubeconfig()
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("envtest: cannot write a kubeconfig: %w", err)
	}
	return nil
}
