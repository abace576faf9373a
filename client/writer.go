// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// Reader reads objects of one type from the API server. *[Handle] implements it.
type Reader[T Object] interface {
	GetLive(ctx context.Context, key types.NamespacedName) (T, error)
	ListLive(ctx context.Context, o ListOptions) iter.Seq2[T, error]
}

// Writer writes objects of one type. *[Handle] implements it, and documents the methods.
//
// Take it, or a [ReadWriter], in code that you test without an API server. A fake or a wrapper
// embeds the interface and defines the methods that it needs. [CreateOrUpdate], [CreateOrPatch] and
// [PatchFrom] use only these methods.
type Writer[T Object] interface {
	Create(ctx context.Context, obj T, options ...Option) (T, error)
	Update(ctx context.Context, obj T, options ...Option) (T, error)
	UpdateStatus(ctx context.Context, obj T, options ...Option) (T, error)
	Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, data []byte, options ...Option) (T, error)
	PatchStatus(ctx context.Context, key types.NamespacedName, pt types.PatchType, data []byte, options ...Option) (T, error)
	Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error)
	ApplyStatus(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error)
	Delete(ctx context.Context, key types.NamespacedName, options ...Option) error
}

// ReadWriter reads and writes objects of one type. *[Handle] implements it.
type ReadWriter[T Object] interface {
	Reader[T]
	Writer[T]
}

var _ ReadWriter[Object] = (*Handle[Object])(nil)
