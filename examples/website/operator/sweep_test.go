// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/kubelet"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/sweep"
)

// TestSweep crashes the operator at each write, and shows it old views.
func TestSweep(t *testing.T) {
	scheme, err := operator.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	hello := types.NamespacedName{Namespace: "default", Name: "hello"}
	sites := client.For[*v1.Website]
	sweep.Run(t, sweep.Scenario{
		Scheme: scheme,
		CRDs:   []string{"../config/crd/web.example.com_websites.yaml"},
		Operator: func(p sweep.Process) (sweep.Operator, error) {
			return operator.New(p.Config, operator.Options{
				Logger: p.Logger, LeaderElection: &leaderelection.Options{Namespace: "default", Lease: operator.Name},
			})
		},
		Beside: []func(sweep.Process) (sweep.Program, error){func(p sweep.Process) (sweep.Program, error) {
			if p.ControlPlane {
				return kubelet.New(p.Config, p.Logger), nil
			}
			return kubelet.NewDeployments(p.Config, p.Logger), nil
		}},
		Steps: []sweep.Step{
			{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
				two := int32(2)
				_, err := sites(c).Create(ctx, &v1.Website{
					ObjectMeta: metav1.ObjectMeta{Namespace: hello.Namespace, Name: hello.Name},
					Spec:       v1.WebsiteSpec{Replicas: &two, Page: v1.Page{Content: "hello"}},
				})
				return err
			}},
			{Name: "change", Do: func(ctx context.Context, c *client.Client) error {
				_, err := sites(c).Patch(ctx, hello, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
				return err
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return sites(c).Delete(ctx, hello) }},
		},
	})
}
