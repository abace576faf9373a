// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/webhook"
)

// Shop is the hub version of a kind, in v1.
type Shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShopSpec `json:"spec,omitempty"`
}

type ShopSpec struct {
	Host   string   `json:"host,omitempty"`
	Port   int      `json:"port,omitempty"`
	Aisles []string `json:"aisles,omitempty"`
}

// ShopAlpha is version v1alpha1, which has host and port in one field and no aisles.
type ShopAlpha struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Address string `json:"address,omitempty"`
	} `json:"spec,omitempty"`
}

// ShopBeta is version v1beta1, which has the port as text.
type ShopBeta struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Host   string   `json:"host,omitempty"`
		Port   string   `json:"port,omitempty"`
		Aisles []string `json:"aisles,omitempty"`
	} `json:"spec,omitempty"`
}

func (s *Shop) DeepCopyObject() runtime.Object      { return copyOf(s) }
func (s *ShopAlpha) DeepCopyObject() runtime.Object { return copyOf(s) }
func (s *ShopBeta) DeepCopyObject() runtime.Object  { return copyOf(s) }

func copyOf[T any](from *T) *T {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
	return to
}

const group = "shops.example.com"

func shops() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for version, obj := range map[string]runtime.Object{"v1": &Shop{}, "v1alpha1": &ShopAlpha{}, "v1beta1": &ShopBeta{}} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: version, Kind: "Shop"}, obj)
	}
	return scheme
}

// hooks returns webhooks without any function.
func hooks() *webhook.Webhooks {
	return webhook.New(webhook.Options{
		Name: "shop-operator", Scheme: shops(),
		Service: types.NamespacedName{Namespace: "shop-system", Name: "shop-webhook"},
	})
}

// converting returns webhooks that convert shops. Address "panic" panics.
func converting() *webhook.Webhooks {
	w := hooks()
	webhook.AddConversion(w, fromAlpha, toAlpha)
	webhook.AddConversion(w, fromBeta, toBeta)
	return w
}

const aisles = "shops.example.com/aisles"

func fromAlpha(from *ShopAlpha, to *Shop) error {
	if from.Spec.Address == "panic" {
		panic("an address that panics")
	}
	if from.Spec.Address != "" {
		host, port, _ := strings.Cut(from.Spec.Address, ":")
		number, err := strconv.Atoi(port)
		if err != nil {
			return fmt.Errorf("spec.address %q has no port", from.Spec.Address)
		}
		to.Spec.Host, to.Spec.Port = host, number
	}
	if kept := to.Annotations[aisles]; kept != "" {
		to.Spec.Aisles = strings.Split(kept, ",")
		delete(to.Annotations, aisles)
	}
	return nil
}

func toAlpha(from *Shop, to *ShopAlpha) error {
	to.Spec.Address = fmt.Sprintf("%s:%d", from.Spec.Host, from.Spec.Port)
	if len(from.Spec.Aisles) > 0 {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, aisles, strings.Join(from.Spec.Aisles, ","))
	}
	return nil
}

func fromBeta(from *ShopBeta, to *Shop) (err error) {
	to.Spec.Host, to.Spec.Aisles = from.Spec.Host, from.Spec.Aisles
	if from.Spec.Port != "" {
		to.Spec.Port, err = strconv.Atoi(from.Spec.Port)
	}
	return err
}

func toBeta(from *Shop, to *ShopBeta) error {
	to.Spec.Host, to.Spec.Aisles = from.Spec.Host, from.Spec.Aisles
	if from.Spec.Port != 0 {
		to.Spec.Port = strconv.Itoa(from.Spec.Port)
	}
	return nil
}
