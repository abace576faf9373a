// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
)

// scraping is a manager whose ServiceAccount may create reviews. It serves metrics to users that
// the API server allows.
type scraping struct {
	direct    kubernetes.Interface
	namespace string
	url       string
	web       *http.Client
	pages     int

	undelegate func(context.Context) // takes the manager's role away
}

func newScraping(ctx context.Context, audiences ...string) *scraping {
	GinkgoHelper()
	s := &scraping{}
	admin := cluster.Config()
	h, err := rest.HTTPClientFor(admin)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	s.direct, err = kubernetes.NewForConfigAndClient(admin, h)
	Expect(err).NotTo(HaveOccurred())
	s.namespace, err = cluster.Namespace(ctx, "metrics-")
	Expect(err).NotTo(HaveOccurred())

	cfg := rest.AnonymousClientConfig(admin)
	cfg.BearerToken = s.token(ctx, "operator")
	s.undelegate = s.bind(ctx, "operator", "system:auth-delegator")
	l, err := server.Listen("127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	m := manager.New(cfg, manager.Options{Name: "metrics", Logger: slog.New(slog.DiscardHandler)})
	guard := server.Add(m, server.Options{Listener: l, Audiences: audiences})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	guard.Handle("/metrics/", guard.Authorize(page))
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(run) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is self-signed
	DeferCleanup(transport.CloseIdleConnections)
	s.url, s.web = "https://"+l.Addr().String(), &http.Client{Transport: transport}
	return s
}

// token returns a token for a ServiceAccount, which it creates if needed.
func (s *scraping) token(ctx context.Context, name string, audiences ...string) string {
	GinkgoHelper()
	accounts := s.direct.CoreV1().ServiceAccounts(s.namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err == nil || apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
	t, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return t.Status.Token
}

// bind gives a ServiceAccount a ClusterRole, and returns a function that removes it.
func (s *scraping) bind(ctx context.Context, account, role string) (unbind func(context.Context)) {
	GinkgoHelper()
	b, err := s.direct.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: account}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	unbind = func(ctx context.Context) {
		GinkgoHelper()
		Expect(s.direct.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, metav1.DeleteOptions{})).To(Succeed())
	}
	return unbind
}

// readers creates a ClusterRole whose subjects may get the metrics.
func (s *scraping) readers(ctx context.Context) (role string) {
	GinkgoHelper()
	r, err := s.direct.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-reader-"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics/*"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return r.Name
}

// scrape requests a new page, for which no decision is cached.
func (s *scraping) scrape(ctx context.Context, method, token string) string {
	s.pages++
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s/metrics/%d", s.url, s.pages), nil)
	if err != nil {
		return err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.web.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body)))
}

var _ = Describe("Authorize", func() {
	It("lets through only users that the API server allows", func(ctx SpecContext) {
		s := newScraping(ctx)
		scraper, stranger := s.token(ctx, "scraper"), s.token(ctx, "stranger")
		unbind := s.bind(ctx, "scraper", s.readers(ctx))
		ask := func(ctx context.Context, token string) func() string {
			return func() string { return s.scrape(ctx, http.MethodGet, token) }
		}
		user := func(name string) string { return "system:serviceaccount:" + s.namespace + ":" + name }
		// Its roles may not be known at once.
		Eventually(ctx, ask(ctx, scraper)).Should(Equal("200 metrics"))
		Expect(s.scrape(ctx, http.MethodPost, scraper)).To(HavePrefix("403 " + user("scraper") + " may not post /metrics/"))
		Expect(s.scrape(ctx, http.MethodGet, stranger)).To(HavePrefix("403 " + user("stranger") + " may not get /metrics/"))
		Expect(s.scrape(ctx, http.MethodGet, "")).To(HavePrefix("401 send the token"))
		Expect(s.scrape(ctx, http.MethodGet, "made-up")).To(Equal("401 the token is not valid here"))
		Expect(s.scrape(ctx, http.MethodGet, scraper[:len(scraper)-4]+"AAAA")).To(Equal("401 the token is not valid here"))
		Expect(s.scrape(ctx, http.MethodGet, s.token(ctx, "scraper", "somebody"))).To(Equal("401 the token is not valid here"))

		By("taking the role away")
		unbind(ctx)
		Eventually(ctx, ask(ctx, scraper)).Should(HavePrefix("403 " + user("scraper") + " may not get"))
		By("deleting the account")
		Expect(s.direct.CoreV1().ServiceAccounts(s.namespace).Delete(ctx, "scraper", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, ask(ctx, scraper)).Should(Equal("401 the token is not valid here"))
	}, NodeTimeout(patience))

	It("accepts tokens for the requested audiences", func(ctx SpecContext) {
		s := newScraping(ctx, "operators")
		s.bind(ctx, "scraper", s.readers(ctx))
		own := s.token(ctx, "scraper", "operators")
		Eventually(ctx, func() string { return s.scrape(ctx, http.MethodGet, own) }).Should(Equal("200 metrics"))
		Expect(s.scrape(ctx, http.MethodGet, s.token(ctx, "scraper"))).To(Equal("401 the token is not valid here"))
	}, NodeTimeout(patience))

	It("rejects all users when the manager may not create reviews", func(ctx SpecContext) {
		s := newScraping(ctx)
		scraper := s.token(ctx, "scraper")
		s.bind(ctx, "scraper", s.readers(ctx))
		Eventually(ctx, func() string { return s.scrape(ctx, http.MethodGet, scraper) }).Should(Equal("200 metrics"))
		s.undelegate(ctx)
		Eventually(ctx, func() string { return s.scrape(ctx, http.MethodGet, scraper) }).
			Should(Equal("503 the API server cannot authorize requests now; see the log"))
	}, NodeTimeout(patience))
})
