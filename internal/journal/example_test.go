// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/journal"
)

// The ledger records the requests of every client that is built from the configuration.
func ExampleJournal() {
	api := sim.NewServer(sim.ConfigMaps)
	c, err := client.New(api.Config(), client.Options{FieldOwner: "example"})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	l := journal.New(journal.Origin{Controller: "website"})
	ctx := journal.With(context.Background(), l)
	configs := client.For[*corev1.ConfigMap](c)
	front := types.NamespacedName{Namespace: "shop", Name: "front"}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: front.Namespace, Name: front.Name}}
	_, err = configs.Create(ctx, o)
	fmt.Println(err, configs.Delete(ctx, front))
	for _, w := range l.Writes() {
		fmt.Println(w.String(), w.Effect)
	}
	// Output:
	// <nil> <nil>
	// create configmaps shop/front stored
	// delete configmaps shop/front gone
}
