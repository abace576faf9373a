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

// LoadConfig returns the configuration to reach the API server. With a path it reads that
// kubeconfig. With "" it uses the first of: the files in KUBECONFIG, the pod's service account,
// ~/.kube/config. Errors name the file, or list what was tried.
//
// Client-side rate limiting is off (QPS -1), because the API server has priority and fairness. To
// limit requests, set QPS and Burst in the result.
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
			return nil, fmt.Errorf("cannot read the kubeconfig: %w; give the path of an existing file, or \"\" to use KUBECONFIG, the pod's service account or ~/.kube/config", err)
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
	// The deferred loader would fall back to the pod's service account if the kubeconfig is empty.
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
