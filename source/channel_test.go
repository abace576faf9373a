// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// keys is a queue that writes down what is due.
type keys struct {
	mu   sync.Mutex
	keys []string
	how  []workqueue.AddOptions
}

func (k *keys) AddAll(keys []string, how workqueue.AddOptions) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, keys...)
	k.how = append(k.how, how)
}

func (k *keys) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := strings.Join(k.keys, " ")
	k.keys = nil
	return text
}

// run runs a source until stop is called.
func run(t *testing.T, src source.Source[string], q *keys, h *hook.Hook) (stop func()) {
	t.Helper()
	testkit.NoError(t, validate(src))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- src.Run(ctx, sink(src, q, h)) }()
	synctest.Wait()
	return func() {
		cancel()
		testkit.Equal(t, <-done, nil)
	}
}

func numbers(_ context.Context, n int) ([]string, error) { return []string{fmt.Sprint(n)}, nil }

// TestChannel: what is sent before the source runs, and while it does, is delivered in order.
func TestChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, q := source.NewChannel("orders", 3, numbers), &keys{}
		for n := range 3 {
			testkit.Equal(t, c.Send(t.Context(), n), nil)
		}
		testkit.Equal(t, c.Status().State().String(), "Channel(orders): not started; 3 events pending", "before")
		testkit.NotEqual(t, c.Status().Stale(), nil, "before")
		stop := run(t, c, q, nil)
		testkit.Equal(t, errors.Join(c.Status().WaitForSync(t.Context()), c.Status().Settled(t.Context()), c.Status().Stale()), nil)
		testkit.Equal(t, c.TrySend(3), true, "there was room")
		synctest.Wait()
		testkit.Equal(t, q.take(), "0 1 2 3")
		want := workqueue.Reason{Source: "Channel(orders)", Event: "event"}
		testkit.Equal(t, q.how[0].Reason, want)
		testkit.Equal(t, q.how[0].Class, workqueue.Normal)
		testkit.Equal(t, c.Status().State().String(), "Channel(orders): synced")
		stop()
		testkit.NotEqual(t, c.Send(t.Context(), 4), nil, "sent after the end")
		testkit.Equal(t, c.TrySend(4), false, "sent after the end")
		testkit.NotEqual(t, c.Status().Stale(), nil, "sent after the end")
		testkit.Equal(t, c.Status().State().String(), "Channel(orders): stopped; dropped: 1 (the source has stopped)")
		testkit.NotEqual(t, c.Run(t.Context(), source.Sink[string]{Queue: q}), nil, "it ran twice")
	})
}

// TestChannelIsBounded: when the channel is full, Send waits for room or the end of its context,
// and TrySend drops and counts, also before the source runs.
func TestChannelIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		h := hook.On(func(d *hook.SourceDropped) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, d.Source+": "+d.Reason)
		})
		slow := func(ctx context.Context, n int) ([]string, error) {
			time.Sleep(time.Second)
			return numbers(ctx, n)
		}
		c, q := source.NewChannel("orders", 2, slow), &keys{}
		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return c.Send(ctx, 9)
		}
		testkit.Equal(t, errors.Join(c.Send(t.Context(), 0), c.Send(t.Context(), 1)), nil)
		began := time.Now()
		testkit.ErrorIs(t, short(), context.DeadlineExceeded)
		testkit.Equal(t, time.Since(began), 10*time.Second)
		testkit.Equal(t, c.TrySend(9), false, "there was no room")
		stop := run(t, c, q, h)
		began = time.Now()
		testkit.Equal(t, c.Send(t.Context(), 2), nil)
		testkit.Equal(t, time.Since(began), time.Second)
		testkit.Equal(t, c.TrySend(9), false, "there was no room")
		time.Sleep(time.Minute)
		testkit.Equal(t, q.take(), "0 1 2")
		want := map[string]int64{"the channel is full": 2}
		testkit.DeepEqual(t, c.Status().State().Dropped, want)
		testkit.Equal(t, c.Status().State().Pending, 0)
		testkit.SlicesEqual(t, told, []string{"Channel(orders): the channel is full"})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.ErrorIs(t, c.Send(cancelled, 3), context.Canceled)
		stop()
	})
}

// TestChannelEndsWhileSomeoneSends: no sender hangs, and each event that is not delivered is
// counted or fails.
func TestChannelEndsWhileSomeoneSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := func(ctx context.Context, _ int) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, q := source.NewChannel("orders", 2, stuck), &keys{}
		failed := 0
		stop := run(t, c, q, hook.On(func(*hook.HandlerFailed) { failed++ }))
		var sending sync.WaitGroup
		errs := make([]error, 5)
		for n := range errs {
			sending.Go(func() { errs[n] = c.Send(context.Background(), n) })
		}
		synctest.Wait()
		stop()
		sending.Wait()
		refused := 0
		for _, err := range errs {
			if err != nil {
				refused++
			}
		}
		testkit.Equal(t, c.Status().State().Dropped["the source has stopped"], 2)
		testkit.Equal(t, refused, 3)
		testkit.Equal(t, failed, 0)
	})
}

// TestS8_ChannelRetries: an event whose handler fails or panics is retried with backoff, while
// others go on.
func TestS8_ChannelRetries(t *testing.T) {
	for what, fail := range map[string]func() error{
		"error": func() error { return errors.New("broken") },
		"panic": func() error { panic("broken") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, tries := time.Now(), 0
				c, q, f := source.NewChannel("orders", 2, func(ctx context.Context, n int) ([]string, error) {
					if n == 1 && time.Since(began) < time.Minute {
						tries++
						return nil, fail()
					}
					return numbers(ctx, n)
				}), &keys{}, &failures{}
				stop := run(t, c, q, f.hook())
				for n := range 5 { // 1 takes up room, and the others pass
					testkit.Equal(t, c.Send(t.Context(), n), nil)
				}
				synctest.Wait()
				testkit.Equal(t, q.take(), "0 2 3 4", "at first")
				if s := c.Status().State(); s.Retrying != 1 || s.Pending != 1 || s.Failure == nil || !strings.Contains(s.String(), "failed for 1 event, to be retried: ") {
					t.Errorf("got %s", s)
				}
				time.Sleep(3 * time.Minute)
				if got := q.take(); got != "1" || tries < 5 || tries > 15 {
					t.Errorf("later: %q after %d tries", got, tries)
				}
				if told := f.take(); len(told) != tries || !strings.Contains(told[0], "broken") {
					t.Errorf("told %d of %d", len(told), tries)
				}
				testkit.Equal(t, c.Status().State().String(), "Channel(orders): synced")
				stop()
			})
		})
	}
}

func TestChannelValidate(t *testing.T) {
	for want, c := range map[string]*source.Channel[int, string]{
		"":           source.NewChannel("orders", 1, numbers),
		"name":       source.NewChannel("", 1, numbers),
		"at least 1": source.NewChannel("orders", 0, numbers),
		"function":   source.NewChannel[int, string]("orders", 1, nil),
	} {
		if err := c.Validate(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
