// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LoadConfig finds out how to reach the API server. With a path it reads that kubeconfig; with "" it takes the first of:
// the files that KUBECONFIG names, the service account of the pod that it runs in, ~/.kube/config.
//
// Client-side rate limiting is switched off (QPS -1): the API server's own priority and fairness does that better. Set
// QPS and Burst in the result to have it back.
//
// The error is one sentence that names the file or lists what was looked for.
func LoadConfig(path string) (*rest.Config, error) {
	cfg, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	if cfg.QPS == 0 {
		cfg.QPS = -1
	}
	return cfg, nil
}

func loadConfig(path string) (*rest.Config, error) {
	const kubeconfig = clientcmd.RecommendedConfigPathEnvVar
	where := os.Getenv(kubeconfig)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	switch {
	case path != "":
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("cannot read the kubeconfig: %w; give the path of an existing file, or none to use KUBECONFIG, the pod's service account or ~/.kube/config", err)
		}
		rules.ExplicitPath, where = path, path
	case where == "":
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("cannot use the pod's service account: %w", err)
		}
		where = clientcmd.RecommendedHomeFile
	}
	// Not the deferred loader: it takes the pod's service account where a kubeconfig that was asked for is empty.
	var cfg *rest.Config
	merged, err := rules.Load()
	if err == nil {
		cfg, err = clientcmd.NewNonInteractiveClientConfig(*merged, "", nil, rules).ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err) && (path != "" || os.Getenv(kubeconfig) != ""):
		return nil, fmt.Errorf("no cluster is configured in the kubeconfig %s, or it does not exist; name another file", where)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("no cluster is configured: there is no pod's service account and nothing in %s; set KUBECONFIG or give the path of a kubeconfig", where)
	case err != nil:
		return nil, fmt.Errorf("cannot use the kubeconfig %s: %w", where, err)
	}
	return cfg, nil
}
