// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// LoadConfig returns the configuration to reach the API server, from the kubeconfig at path. With
// "" it uses the first of these that exists: the files in KUBECONFIG, the pod's service account,
// ~/.kube/config. Errors name the file, or list what was tried.
//
// Client-side rate limiting is off (QPS -1), because the API server has priority and fairness. To
// limit requests, set QPS and Burst.
func LoadConfig(path string) (*rest.Config, error) { return LoadConfigContext(path, "") }

// LoadConfigContext is LoadConfig with the named context of the kubeconfig; "" means its current
// context. The error for an unknown name lists the contexts. A pod's service account has none: in a
// pod, a name without a path or KUBECONFIG is an error.
func LoadConfigContext(path, name string) (*rest.Config, error) {
	cfg, err := loadConfig(path, name)
	if err != nil {
		return nil, err
	}
	cfg.QPS = cmp.Or(cfg.QPS, -1)
	return cfg, nil
}

func loadConfig(path, name string) (*rest.Config, error) {
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
		if name != "" && !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("cannot use the context %q: in a pod, the service account is used, which has no contexts; set KUBECONFIG or give the path of a kubeconfig", name)
		}
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
		if err := checkContext(merged, where, name); err != nil {
			return nil, err
		}
		cfg, err = clientcmd.NewNonInteractiveClientConfig(*merged, name, nil, rules).ClientConfig()
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

func checkContext(c *clientcmdapi.Config, kubeconfig, name string) error {
	context := c.Contexts[cmp.Or(name, c.CurrentContext)]
	switch {
	case context != nil && context.Cluster != "" && c.Clusters[context.Cluster] == nil:
		return fmt.Errorf("the context %q of the kubeconfig %s has the cluster %q, which is not in the kubeconfig; add it or use another context",
			cmp.Or(name, c.CurrentContext), kubeconfig, context.Cluster)
	case context != nil || name == "": // an unknown current context is the loader's error
		return nil
	case len(c.Contexts) == 0:
		return fmt.Errorf("the kubeconfig %s has no contexts, or does not exist; add the context %q, or name another file", kubeconfig, name)
	default:
		return fmt.Errorf("the kubeconfig %s has no context %q; use one of %q", kubeconfig, name, slices.Sorted(maps.Keys(c.Contexts)))
	}
}
