// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

var errBusy = errors.New("too many new tokens wait for a review; try again")

const maxReviews = 8

// hash stands for a token, or for a question about one: both are secret and of any length.
type hash [sha256.Size]byte

// lane is a queue of one token that was valid lately, or of one client: for its plausible tokens,
// or for its others.
type lane struct {
	from      netip.Prefix
	plausible bool
	token     hash
}

// budget allows each lane at most one reservation at the limiter, so that one client cannot use up
// the budget.
type budget struct {
	limiter *rate.Limiter
	queue   int           // of questions in a lane
	slots   chan struct{} // one element for each running review

	mu    sync.Mutex // guards lanes and reservations
	lanes map[lane]*waiting
}

type waiting struct {
	questions int
	first     chan struct{} // an element while a question of the lane has a reservation
}

func newBudget(every time.Duration, burst, queue int) *budget {
	return &budget{limiter: rate.NewLimiter(rate.Every(every), burst), queue: queue, slots: make(chan struct{}, maxReviews), lanes: map[lane]*waiting{}}
}

func (b *budget) take(ctx context.Context, l lane) (done func(), err error) {
	first, err := b.enter(l)
	if err != nil {
		return nil, err
	}
	select {
	case first <- struct{}{}:
	case <-ctx.Done():
		b.leave(l)
		return nil, errBusy
	}
	turn := make(chan struct{})
	over := func() {
		<-first
		b.leave(l)
		close(turn)
	}
	delay, ok := b.reserve(ctx)
	if !ok {
		over()
		return nil, errBusy
	}
	time.AfterFunc(delay, over) // even if the client disconnects: others have reserved later turns
	select {
	case <-turn:
	case <-ctx.Done():
		return nil, errBusy
	}
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

func (b *budget) enter(l lane) (first chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.lanes[l]
	if w == nil {
		w = &waiting{first: make(chan struct{}, 1)}
		b.lanes[l] = w
	}
	if w.questions >= b.queue {
		return nil, errBusy
	}
	w.questions++
	return w.first, nil
}

func (b *budget) reserve(ctx context.Context) (delay time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.limiter.Reserve()
	delay = r.Delay()
	if end, limited := ctx.Deadline(); limited && delay > time.Until(end) {
		r.Cancel()
		return 0, false
	}
	return delay, true
}

func (b *budget) leave(l lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.lanes[l]
	if w.questions--; w.questions == 0 {
		delete(b.lanes, l)
	}
}

// plausible reports whether a token looks like the API server's, for one of the audiences and now.
// It does not check the signature.
func plausible(token string, audiences []string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[2] == "" {
		return false
	}
	var claims struct {
		Issuer  string  `json:"iss"`
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"`
		After   float64 `json:"nbf"`
		For     any     `json:"aud"`
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	if !decode(parts[0], &header) || !decode(parts[1], &claims) {
		return false
	}
	now := float64(time.Now().Unix())
	switch {
	case header.Algorithm == "" || strings.EqualFold(header.Algorithm, "none") || claims.Issuer == "" || claims.Subject == "":
		return false
	case claims.Expires != 0 && claims.Expires < now, claims.After > now+60:
		return false
	}
	return len(audiences) == 0 || slices.ContainsFunc(audiences, func(a string) bool {
		all, _ := claims.For.([]any)
		return claims.For == a || slices.Contains(all, any(a))
	})
}

func decode(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}
