// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// serviceMonitor has the fields of config/prometheus/service_monitor.yaml. An unknown field is an
// error.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port            string `json:"port"`
			Path            string `json:"path"`
			Scheme          string `json:"scheme"`
			BearerTokenFile string `json:"bearerTokenFile"`
			TLSConfig       struct {
				InsecureSkipVerify bool `json:"insecureSkipVerify"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

func read[T any](file string) (object T) {
	GinkgoHelper()
	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(data, &object)).To(Succeed())
	return object
}

// expectMetrics scrapes the program as the ServiceMonitor describes it, with the rights of the
// manifests.
func expectMetrics(ctx context.Context, session *gexec.Session) {
	GinkgoHelper()
	address := regexp.MustCompile(`"metrics server","address":"([^"]+)"`).FindSubmatch(session.Err.Contents())
	Expect(address).NotTo(BeNil())
	monitor, service := read[serviceMonitor]("../config/prometheus/service_monitor.yaml"), read[corev1.Service]("../config/metrics/service.yaml")
	Expect(labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels))).To(BeTrue())
	Expect(monitor.Spec.Endpoints).To(HaveLen(1))
	endpoint := monitor.Spec.Endpoints[0]
	Expect(endpoint.Port).To(Equal(service.Spec.Ports[0].Name))
	url := endpoint.Scheme + "://" + string(address[1]) + endpoint.Path

	status, _ := scrape(ctx, url, "")
	Expect(status).To(Equal(http.StatusUnauthorized))
	status, body := scrape(ctx, url, account.BearerToken)
	Expect(status).To(Equal(http.StatusForbidden), body)
	status, body = scrape(ctx, url, scraper(ctx))
	Expect(status).To(Equal(http.StatusOK), body)
	Expect(body).To(ContainSubstring("\nworkqueue_depth{controller=\"website\",name=\"website\",priority=\"0\"} 0\n"))
	Expect(body).To(ContainSubstring("\nleader_election_master_status{name=\"website-operator\"} 1\n"))
	Expect(body).To(ContainSubstring("\ngo_goroutines "))
}

// scraper returns a token of the ServiceAccount that the manifests bind.
func scraper(ctx context.Context) string {
	GinkgoHelper()
	const file = "../config/prometheus/reader_binding.yaml"
	account := read[rbacv1.ClusterRoleBinding](file).Subjects[0]
	_, err := clientset.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: account.Namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = clientset.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.Name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.Apply(ctx, file)).To(Succeed())
	token, err := clientset.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token.Status.Token
}

func scrape(ctx context.Context, url, token string) (status int, body string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // self-signed
	resp, err := (&http.Client{Transport: transport}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp.StatusCode, string(text)
}
