// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// These environment variables make a process an operator. With stubborn, its work does not stop.
// With obedient, it stops at once, and writes nothing.
const (
	asOperator = "SETPOINT_OPERATOR"
	namespaced = "SETPOINT_OPERATOR_NAMESPACE"
	stubborn   = "SETPOINT_OPERATOR_STUBBORN"
	obedient   = "SETPOINT_OPERATOR_OBEDIENT"
)

// operate runs an operator as a process and returns its exit status. While it leads, it writes once
// for each line that it reads, and reports the result. It is badly written on purpose: when it has
// to stop it writes once more, and it ignores the end of its context.
func operate(identity string) int {
	cfg, err := client.LoadConfig("")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	mgr := manager.New(cfg, manager.Options{Name: "operator", LeaderElection: &leaderelection.Options{
		Lease: "operator", Namespace: os.Getenv(namespaced), Identity: identity,
		LeaseDuration: 8 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond,
		Hook: hook.Join(
			hook.On(func(e *hook.LeaseHolder) { fmt.Println("sees", e.Identity) }),
			hook.On(func(*hook.LeaseLost) { fmt.Println("lost") }),
		),
	}})
	lines := make(chan struct{})
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- struct{}{}
		}
	}()
	mgr.AddLeaderOnly("write", func(ctx context.Context) error {
		fmt.Println("leads")
		if os.Getenv(stubborn) != "" {
			select {} // it does not stop
		}
		if os.Getenv(obedient) != "" {
			<-ctx.Done()
			return nil
		}
		maps := client.For[*corev1.ConfigMap](mgr.Client())
		for {
			select {
			case <-lines:
			case <-ctx.Done():
			}
			patch := fmt.Appendf(nil, `{"data":{"by":%q,"at":%q}}`, identity, time.Now().Format(time.RFC3339Nano))
			key := types.NamespacedName{Namespace: os.Getenv(namespaced), Name: "config"}
			_, err := maps.Patch(context.WithoutCancel(ctx), key, types.MergePatchType, patch)
			if err != nil {
				fmt.Println("refused:", err)
				<-ctx.Done()
				// It takes a while to stop.
				_, _ = maps.GetLive(term.Without(context.WithoutCancel(ctx)), key)
				return err
			}
			fmt.Println("wrote")
			if ctx.Err() != nil {
				return nil
			}
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := mgr.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
