// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	allowedFor    = time.Minute
	refusedFor    = 5 * time.Second
	maxAnswers    = 1000             // entries in each cache
	maxToken      = 16 << 10         // bytes; ServiceAccount tokens have 1 to 2 KB
	provenFor     = 10 * time.Minute // preferred to new ones
	reviewTimeout = 5 * time.Second  // for the turn and both reviews
)

// Authorize returns a handler that passes a request to h if the API server accepts its bearer token
// (TokenReview) and allows the user its method on its path. The SubjectAccessReview is for a
// non-resource URL, with the method in lower case. This rule lets a scraper read metrics:
//
//	kind: ClusterRole
//	rules:
//	- nonResourceURLs: [/metrics]
//	  verbs: [get]
//
// Bind the program's own ServiceAccount to the ClusterRole system:auth-delegator. Without
// Options.Client, or if h is nil, Validate, Open and Serve return the mistake, and after Open it
// closes Failed.
// Refused requests get these statuses:
//
//	400  h could mistake the path or method for another one: a path with a . or .. segment (also
//	     before a ;), a backslash, a control character or a % after decoding, or a method that is
//	     not in upper case; no review
//	401  no token, or an invalid one
//	403  the user lacks the permission; the answer names it
//	429  too many new tokens wait for a review
//	431  a token of more than 16 KiB
//	503  the API server cannot be asked
//
// A permission is cached for a minute, a refusal for five seconds. Equal questions share one
// review.
//
// Reviews are limited: 50 a second for tokens that were valid within the last ten minutes, and 10
// for others. Clients take turns by address (IPv6: by /64); at one address, tokens that look like a
// ServiceAccount's take turns with others. At most ten requests wait per turn (100 of a token that
// was valid lately), for at most five seconds. A flood of made-up tokens never delays a request
// that was allowed within the last minute. docs/operations.md describes other delays.
//
// The reviewed path is the one that h gets. To strip a prefix, wrap the handler that Authorize
// returns.
func (s *Server) Authorize(h http.Handler) http.Handler {
	if argument.IsNil(h) {
		s.failed(errors.New("Authorize: the handler is nil"))
		return http.NotFoundHandler()
	}
	a, err := newAuthorizer(s.o.Client, s.o.Audiences)
	if err != nil {
		s.failed(fmt.Errorf("Authorize: %w", err))
		return http.NotFoundHandler()
	}
	s.authorizes.Store(true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := a.judge(r)
		if v.status == http.StatusOK {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, v.user)))
			return
		}
		if v.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		if v.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
		}
		http.Error(w, v.why, v.status)
	})
}

// Needs returns the right to review tokens and access, if Authorize was called.
func (s *Server) Needs() []rbac.Need {
	if !s.authorizes.Load() {
		return nil
	}
	right := func(group, resource string) rbac.Need {
		return rbac.Need{Rule: rbac.Rule{Group: group, Resource: resource, Verbs: []string{"create"}, Why: "Authorize of the " + s.o.Name}}
	}
	return []rbac.Need{right(authenticationv1.GroupName, "tokenreviews"), right(authorizationv1.GroupName, "subjectaccessreviews")}
}

type authorizer struct {
	audiences []string
	tokens    authentication.TokenReviewInterface
	access    authorization.SubjectAccessReviewInterface

	proven, unproven *budget // reviews of tokens that were valid lately, and of others
	flooded          rate.Sometimes

	// allowed and refused have verdicts by question, and refused also by invalid token. valid has
	// the tokens that were valid lately. Any client can fill refused, so allowed is separate.
	allowed, refused, valid *cache.LRUExpireCache

	asked   sync.Map     // question to *review, while the review runs
	trouble atomic.Value // string: as logged last
}

type verdict struct {
	status int
	why    string
	user   string // with status 200
}

type userKey struct{}

// UserFromContext returns the name of the user that [Server.Authorize] has let pass, from the
// context of the request. It is empty for other requests.
func UserFromContext(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func verbOf(r *http.Request) string { return strings.ToLower(r.Method) }

func tokenOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

type review struct {
	done    chan struct{}
	verdict verdict // set before done is closed; zero if the first client disconnected
}

func newAuthorizer(c *client.Client, audiences []string) (*authorizer, error) {
	if c == nil {
		return nil, errors.New("set server.Options.Client, whose API server reviews tokens")
	}
	cfg := c.Config()
	cfg.QPS, cfg.RateLimiter = -1, nil // the budgets limit reviews
	tokens, err := authentication.NewForConfigAndClient(cfg, c.HTTPClient())
	if err != nil {
		return nil, err
	}
	access, err := authorization.NewForConfigAndClient(cfg, c.HTTPClient())
	if err != nil {
		return nil, err
	}
	a := &authorizer{
		audiences: slices.Clone(audiences), tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(),
		proven: newBudget(time.Second/50, 100, 100), unproven: newBudget(time.Second/10, 20, 10),
		flooded: rate.Sometimes{Interval: time.Minute},
		allowed: cache.NewLRUExpireCache(maxAnswers), refused: cache.NewLRUExpireCache(maxAnswers), valid: cache.NewLRUExpireCache(maxAnswers),
	}
	a.trouble.Store("")
	return a, nil
}

func (a *authorizer) judge(r *http.Request) verdict {
	token := tokenOf(r)
	switch why := ambiguous(r); {
	case why != "":
		return verdict{status: http.StatusBadRequest, why: why}
	case token == "":
		return verdict{status: http.StatusUnauthorized, why: "send the token of a ServiceAccount: Authorization: Bearer TOKEN"}
	case len(token) > maxToken:
		return verdict{status: http.StatusRequestHeaderFieldsTooLarge, why: fmt.Sprintf("the token has %d bytes, at most %d are reviewed", len(token), maxToken)}
	}
	q := hashOf(token + "\x00" + verbOf(r) + "\x00" + r.URL.Path) // token and method have no NUL
	for r.Context().Err() == nil {
		if known, ok := a.known(hashOf(token), q); ok {
			return known
		}
		mine := &review{done: make(chan struct{})}
		found, loaded := a.asked.LoadOrStore(q, mine)
		asked := found.(*review) //nolint:forcetypeassert // the only type in the map
		if !loaded {
			a.ask(r, q, asked)
		}
		select {
		case <-asked.done:
			if asked.verdict.status != 0 {
				return asked.verdict
			}
		case <-r.Context().Done():
		}
	}
	return verdict{status: http.StatusServiceUnavailable} // the client has disconnected
}

func hashOf(text string) hash { return sha256.Sum256([]byte(text)) }

func (a *authorizer) known(token, q hash) (v verdict, ok bool) {
	found, ok := a.refused.Get(token)
	if !ok {
		found, ok = a.allowed.Get(q)
	}
	if !ok {
		found, ok = a.refused.Get(q)
	}
	v, _ = found.(verdict)
	return v, ok
}

func (a *authorizer) ask(r *http.Request, q hash, asked *review) {
	defer close(asked.done)
	defer a.asked.Delete(q)
	ctx := r.Context()
	limited, cancel := context.WithTimeout(term.Without(ctx), reviewTimeout) // on every replica
	defer cancel()
	v, err := a.review(limited, r)
	busy := errors.Is(err, errBusy)
	if !busy {
		a.log(ctx, err)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case busy:
		if due(&a.flooded) {
			logging.Of(ctx).Warn("requests are refused with 429: too many new tokens wait for a review; find their senders")
		}
		v = verdict{status: http.StatusTooManyRequests, why: err.Error()}
	case err != nil:
		v = verdict{status: http.StatusServiceUnavailable, why: "the API server cannot authorize requests now; see the log"}
	case v.status == http.StatusOK:
		a.allowed.Add(q, v, allowedFor)
	case v.status == http.StatusUnauthorized:
		a.refused.Add(hashOf(tokenOf(r)), v, refusedFor)
	default:
		a.refused.Add(q, v, refusedFor)
	}
	asked.verdict = v
}

func (a *authorizer) review(ctx context.Context, r *http.Request) (verdict, error) {
	done, err := a.turn(ctx, r)
	if err != nil {
		return verdict{}, err
	}
	defer done()
	who, err := a.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tokenOf(r), Audiences: a.audiences}}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("TokenReview: %w", err)
	}
	meant := len(a.audiences) == 0 || slices.ContainsFunc(who.Status.Audiences, func(s string) bool { return slices.Contains(a.audiences, s) })
	if !who.Status.Authenticated || !meant {
		return verdict{status: http.StatusUnauthorized, why: "the token is not valid here"}, nil
	}
	a.valid.Add(hashOf(tokenOf(r)), struct{}{}, provenFor)
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := a.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: verbOf(r)},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return verdict{}, fmt.Errorf("SubjectAccessReview: %w", err)
	case !may.Status.Allowed || may.Status.Denied:
		why := fmt.Sprintf("%s may not %s %s: bind a ClusterRole with that verb on this nonResourceURL", user.Username, verbOf(r), r.URL.Path)
		return verdict{status: http.StatusForbidden, why: why}, nil
	default:
		return verdict{status: http.StatusOK, user: user.Username}, nil
	}
}

func (a *authorizer) turn(ctx context.Context, r *http.Request) (done func(), err error) {
	token := tokenOf(r)
	if _, proven := a.valid.Get(hashOf(token)); proven {
		return a.proven.take(ctx, lane{token: hashOf(token)})
	}
	return a.unproven.take(ctx, lane{from: clientOf(r.RemoteAddr), plausible: plausible(token, a.audiences)})
}

func (a *authorizer) log(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	switch log := logging.Of(ctx); {
	case a.trouble.Swap(trouble) == trouble:
	case err == nil:
		log.Info("requests can be authorized again")
	case apierrors.IsForbidden(err):
		log.Error("requests cannot be authorized; bind this program's ServiceAccount to the ClusterRole system:auth-delegator", "err", err)
	default:
		log.Error("requests cannot be authorized", "err", err)
	}
}

// ambiguous returns the text of a 400, or "". A handler could mistake an ambiguous path or method
// for another one than the reviewed one.
func ambiguous(r *http.Request) string {
	path := r.URL.Path
	switch {
	case r.Method != strings.ToUpper(r.Method):
		return "send the method in upper case"
	case !strings.HasPrefix(path, "/"):
		return "send a path that begins with /"
	case strings.Contains(path, "%"):
		return "send a path that is encoded once: without % after decoding"
	case strings.Contains(path, `\`):
		return `send a path without \`
	case !utf8.ValidString(path) || strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "send a path of UTF-8 without control characters"
	}
	for segment := range strings.SplitSeq(path, "/") {
		name, _, _ := strings.Cut(segment, ";") // some servers cut parameters, Windows cuts spaces
		if name = strings.TrimRight(name, " "); name == "." || name == ".." {
			return "send a path without . and .."
		}
	}
	return ""
}
