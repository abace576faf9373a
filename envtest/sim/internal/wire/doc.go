// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire has the forms in which objects travel: media types, PartialObjectMetadata, the
// envelope of protobuf, and the frames of watches.
package wire
