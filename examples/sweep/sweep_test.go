// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package passwords

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/sweep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSweep(t *testing.T) {
	bot := types.NamespacedName{Namespace: "default", Name: "bot"}
	accounts, secrets := client.For[*corev1.ServiceAccount], client.For[*corev1.Secret]
	sweep.Run(t, sweep.Scenario{
		Scheme:   scheme.Scheme,
		Operator: func(p sweep.Process) (sweep.Operator, error) { return operator(p.Config, p.Logger), nil },
		Steps: []sweep.Step{
			{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
				_, err := accounts(c).Create(ctx, &corev1.ServiceAccount{
					ObjectMeta: metav1.ObjectMeta{Namespace: bot.Namespace, Name: bot.Name, Labels: map[string]string{label: "yes"}},
				})
				return err
			}},
			{Name: "rotate", Do: func(ctx context.Context, c *client.Client) error {
				return client.IgnoreNotFound(secrets(c).Delete(ctx, bot))
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return accounts(c).Delete(ctx, bot) }},
		},
		Invariants: []sweep.Invariant{{Name: "one password", Holds: func(s *sweep.State) error {
			if n := len(sweep.List[*corev1.Secret](s)); n > 1 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		}}},
	})
}
