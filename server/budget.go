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
)

// errBusy is that there are more questions than are reviewed.
var errBusy = errors.New("too many tokens that were not seen before are waiting for a review")

// maxReviews is how many reviews of a budget are under way at once: any client can make up tokens.
const maxReviews = 8

// question is what a review answers: a hash of token, verb and path. They are secret, and as long
// as a client likes.
type question [sha256.Size]byte

// lane is a queue for one client, for its tokens that look like a ServiceAccount's or for others; or
// for one token that was valid lately.
type lane struct {
	from      netip.Prefix
	plausible bool
	token     question
}

// budget limits the rate of reviews. The lanes take turns, so that one client cannot take all.
type budget struct {
	every time.Duration // one review, on average
	burst int           // so many at once after a pause
	queue int           // so many wait in a lane; more are refused
	slots chan struct{} // those under way

	mu      sync.Mutex // guards what follows
	waiting map[lane][]chan struct{}
	turns   []lane // those with a waiting question
	spent   time.Time
	timer   *time.Timer // nil: no question waits
}

func newBudget(every time.Duration, burst, queue int) *budget {
	return &budget{every: every, burst: burst, queue: queue, slots: make(chan struct{}, maxReviews), waiting: map[lane][]chan struct{}{}}
}

// take waits for a turn and a slot. done gives the slot back.
func (b *budget) take(ctx context.Context, l lane) (done func(), err error) {
	turn, err := b.wait(l)
	if err != nil {
		return nil, err
	}
	select {
	case <-turn:
	case <-ctx.Done():
		b.leave(l, turn)
		return nil, errBusy
	}
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

func (b *budget) wait(l lane) (turn chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting[l]) >= b.queue {
		return nil, errBusy
	}
	if len(b.waiting[l]) == 0 {
		b.turns = append(b.turns, l)
	}
	turn = make(chan struct{})
	b.waiting[l] = append(b.waiting[l], turn)
	b.serveLocked()
	return turn, nil
}

// leave takes back a question whose client has gone.
func (b *budget) leave(l lane, turn chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[l] = slices.DeleteFunc(b.waiting[l], func(c chan struct{}) bool { return c == turn })
	if len(b.waiting[l]) == 0 {
		delete(b.waiting, l)
		b.turns = slices.DeleteFunc(b.turns, func(other lane) bool { return other == l })
	}
	b.serveLocked()
}

// serveLocked gives turns to as many as the budget allows, and sets the timer for the next one.
// spent is when the budget would be full but for the burst (the generic cell rate algorithm).
func (b *budget) serveLocked() {
	now := time.Now()
	for len(b.turns) > 0 {
		if full := now.Add(-time.Duration(b.burst) * b.every); b.spent.Before(full) {
			b.spent = full
		}
		if b.spent.Add(b.every).After(now) {
			break
		}
		b.spent = b.spent.Add(b.every)
		l := b.turns[0]
		b.turns = b.turns[1:]
		close(b.waiting[l][0])
		if b.waiting[l] = b.waiting[l][1:]; len(b.waiting[l]) == 0 {
			delete(b.waiting, l)
		} else {
			b.turns = append(b.turns, l)
		}
	}
	switch {
	case len(b.turns) == 0 && b.timer != nil:
		b.timer.Stop()
	case len(b.turns) == 0:
	case b.timer == nil:
		b.timer = time.AfterFunc(b.spent.Add(b.every).Sub(now), b.serve)
	default:
		b.timer.Reset(b.spent.Add(b.every).Sub(now))
	}
}

func (b *budget) serve() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serveLocked()
}

// plausible reports whether a token looks like one that the API server issued: a JWT with an issuer
// and a subject, valid now, for one of the audiences. It does not check the signature.
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
