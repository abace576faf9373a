// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const (
	// podVolume is an environment variable with the folder of a pod's projected volume.
	podVolume = "SETPOINT_TEST_POD_VOLUME"
	// mounted is where a pod has it.
	mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
	// credential is the extra field that names the token of a request.
	credential = "authentication.kubernetes.io/credential-id"
)

// TestInPod is the program in a pod, which the specs below start. It prints "loaded", waits for a
// line of input, runs, and prints a line for each Reconcile: the object, the user and the token.
func TestInPod(t *testing.T) {
	volume := os.Getenv(podVolume)
	if volume == "" {
		t.Skip("it runs as a child of another test")
	}
	if err := mountVolume(volume); err != nil {
		fmt.Println("unable:", err)
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	cfg, err := client.LoadConfig("")
	testkit.NoError(t, err)
	namespace, err := os.ReadFile(filepath.Join(mounted, "namespace"))
	testkit.NoError(t, err)
	mgr := manager.New(cfg, manager.Options{
		Name: "in-pod", Logger: slog.New(slog.DiscardHandler), LeaderElection: &leaderelection.Options{Lease: "in-pod"},
		Cache: cache.Options{Namespaces: cache.ParseNamespaces(string(namespace))},
	})
	clients, err := kubernetes.NewForConfigAndClient(mgr.Client().Config(), mgr.Client().HTTPClient())
	testkit.NoError(t, err)
	c := controller.New("in-pod", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			fmt.Println("failed:", err)
			return controller.Result{}, err
		}
		fmt.Println("reconciled", key, review.Status.UserInfo.Username, review.Status.UserInfo.Extra[credential])
		return controller.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}), controller.Options{})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self()))
	mgr.Add(c)
	fmt.Println("loaded")
	testkit.NoError(t, testkit.Err(bufio.NewReader(os.Stdin).ReadString('\n')))
	fmt.Println("stopped:", mgr.Run(ctx))
}

// mountVolume mounts a folder as the volume of a pod. The process has a mount namespace of its own.
func mountVolume(volume string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/var/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /var/run: %w", err)
	}
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		return err
	}
	return syscall.Mount(volume, mounted, "", syscall.MS_BIND, "")
}

// account is a ServiceAccount with a Role in its namespace.
type account struct {
	direct    kubernetes.Interface
	namespace string
}

func newAccount(ctx context.Context) *account {
	GinkgoHelper()
	h, err := rest.HTTPClientFor(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	a := &account{}
	a.direct, err = kubernetes.NewForConfigAndClient(cluster.Config(), h)
	Expect(err).NotTo(HaveOccurred())
	a.namespace, err = cluster.Namespace(ctx, "pod-")
	Expect(err).NotTo(HaveOccurred())
	meta := metav1.ObjectMeta{Name: "operator"}
	_, err = a.direct.CoreV1().ServiceAccounts(a.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = a.direct.RbacV1().Roles(a.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = a.direct.RbacV1().RoleBindings(a.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "operator", Namespace: a.namespace}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	allowed(ctx, a.direct, "system:serviceaccount:"+a.namespace+":operator", authorizationv1.ResourceAttributes{Namespace: a.namespace, Resource: "configmaps", Verb: "list"})
	return a
}

// token returns a token that is valid while a Secret of this name exists, and its ID.
func (a *account) token(ctx context.Context, boundTo string) (token, id string) {
	GinkgoHelper()
	s, err := a.direct.CoreV1().Secrets(a.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: boundTo}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	r, err := a.direct.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, "operator", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(r.Status.Token, ".")[1])
	Expect(err).NotTo(HaveOccurred())
	var known struct{ JTI string }
	Expect(json.Unmarshal(claims, &known)).To(Succeed())
	return r.Status.Token, "JTI=" + known.JTI
}

func (a *account) create(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := a.direct.CoreV1().ConfigMaps(a.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// reconciled is the line of a Reconcile.
func (a *account) reconciled(name, tokenID string) string {
	return fmt.Sprintf("reconciled %s/%s system:serviceaccount:%s:operator [%s]", a.namespace, name, a.namespace, tokenID)
}

// project writes the files of a projected volume as the kubelet does: a new folder, and a link that
// changes at once.
func (a *account) project(volume, version, token string, ca []byte) {
	GinkgoHelper()
	Expect(os.Mkdir(filepath.Join(volume, version), 0o755)).To(Succeed())
	for name, content := range map[string][]byte{"token": []byte(token), "namespace": []byte(a.namespace), "ca.crt": ca} {
		Expect(os.WriteFile(filepath.Join(volume, version, name), content, 0o600)).To(Succeed())
		link := filepath.Join(volume, name)
		if _, err := os.Lstat(link); err != nil {
			Expect(os.Symlink(filepath.Join("..data", name), link)).To(Succeed())
		}
	}
	Expect(os.Symlink(version, filepath.Join(volume, "..next"))).To(Succeed())
	Expect(os.Rename(filepath.Join(volume, "..next"), filepath.Join(volume, "..data"))).To(Succeed())
}

// pod is a running TestInPod.
type pod struct {
	lines <-chan string // of its output; closed at the end
	input io.Writer
	stop  func() // terminates it, and waits
}

// startPod starts TestInPod with a volume and an API server, and returns when it is loaded.
func startPod(ctx context.Context, volume, server string) *pod {
	GinkgoHelper()
	host, err := url.Parse(server)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestInPod$") //nolint:gosec // this program
	cmd.Env = []string{podVolume + "=" + volume, "KUBERNETES_SERVICE_HOST=" + host.Hostname(), "KUBERNETES_SERVICE_PORT=" + host.Port(), "HOME=" + volume}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	input, err := cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	if err := cmd.Start(); err != nil {
		Skip("this system does not allow mount namespaces: " + err.Error())
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		in.Close()
		ended <- err
	}()
	all := make(chan string, 10_000)
	go func() {
		defer close(all)
		for s := bufio.NewScanner(out); s.Scan(); {
			all <- s.Text()
		}
	}()
	p := &pod{lines: all, input: input}
	p.stop = func() {
		GinkgoHelper()
		Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		p.until(ctx, "stopped: <nil>")
		Eventually(ctx, ended).Should(Receive())
	}
	p.until(ctx, "loaded")
	return p
}

// run lets the program run.
func (p *pod) run() {
	GinkgoHelper()
	_, err := fmt.Fprintln(p.input)
	Expect(err).NotTo(HaveOccurred())
}

// until waits for a line with this start. It fails at a line of a failure or at the end.
func (p *pod) until(ctx context.Context, start string) {
	GinkgoHelper()
	p.await(ctx, start, false)
}

func (p *pod) await(ctx context.Context, start string, mayFail bool) {
	GinkgoHelper()
	var seen []string
	for {
		select {
		case line, ok := <-p.lines:
			if reason, unable := strings.CutPrefix(line, "unable: "); unable {
				Skip("this system does not allow mounts: " + reason)
			}
			if strings.HasPrefix(line, start) {
				return
			}
			if seen = append(seen, line); !ok || !mayFail && strings.HasPrefix(line, "failed: ") {
				Fail("no line " + start + " in " + strings.Join(seen, "\n"))
			}
		case <-ctx.Done():
			Fail("no line " + start + " in " + strings.Join(seen, "\n"))
		}
	}
}

var _ = Describe("In-cluster configuration", func() {
	var (
		a        *account
		volume   string
		original string // the first token
		firstID  string
	)

	BeforeEach(func(ctx SpecContext) {
		a, volume = newAccount(ctx), GinkgoT().TempDir()
		original, firstID = a.token(ctx, "first")
		a.project(volume, "..first", original, cluster.Config().CAData)
		a.create(ctx, "early")
	})

	// revoke makes the first token invalid, and waits until the API server refuses it.
	revoke := func(ctx context.Context) {
		GinkgoHelper()
		Expect(a.direct.CoreV1().Secrets(a.namespace).Delete(ctx, "first", metav1.DeleteOptions{})).To(Succeed())
		cfg := rest.AnonymousClientConfig(cluster.Config())
		cfg.BearerToken = original
		h, err := rest.HTTPClientFor(cfg)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(h.CloseIdleConnections)
		refused, err := kubernetes.NewForConfigAndClient(cfg, h)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) bool {
			_, err := refused.CoreV1().ConfigMaps(a.namespace).List(ctx, metav1.ListOptions{})
			return apierrors.IsUnauthorized(err)
		}).WithTimeout(patience).Should(BeTrue())
	}

	It("works with the files of a projected volume", func(ctx SpecContext) {
		p := startPod(ctx, volume, cluster.Config().Host)
		p.run()
		p.until(ctx, a.reconciled("early", firstID))
		_, err := a.direct.CoordinationV1().Leases(a.namespace).Get(ctx, "in-pod", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred(), "the Lease is in the pod's namespace")
		p.stop()
	}, SpecTimeout(patience))

	It("reads the token from the volume, not from the time when the configuration was loaded", func(ctx SpecContext) {
		p := startPod(ctx, volume, cluster.Config().Host)
		second, secondID := a.token(ctx, "second")
		a.project(volume, "..second", second, cluster.Config().CAData)
		revoke(ctx)
		p.run()
		p.until(ctx, a.reconciled("early", secondID))
		p.stop()
	}, SpecTimeout(patience))

	It("goes on with the next token when it is rotated", func(ctx SpecContext) {
		if os.Getenv("SETPOINT_FULL") == "" {
			Skip("client-go reads the token about every minute; set SETPOINT_FULL=1")
		}
		p := startPod(ctx, volume, cluster.Config().Host)
		p.run()
		p.until(ctx, a.reconciled("early", firstID))
		second, secondID := a.token(ctx, "second")
		a.project(volume, "..second", second, cluster.Config().CAData)
		p.until(ctx, a.reconciled("early", secondID))
		revoke(ctx)
		a.create(ctx, "late")
		p.until(ctx, a.reconciled("late", secondID))
		p.stop()
	}, SpecTimeout(2*patience))
})
