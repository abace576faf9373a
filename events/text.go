// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// In bytes: see pkg/apis/core/validation/events.go in k8s.io/kubernetes.
const (
	maxNote     = 1024
	maxWord     = 128 // reason and action
	maxInstance = 128
)

func valid(word string) bool {
	return word != "" && len(word) <= maxWord && utf8.ValidString(word)
}

func printable(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

// cut shortens text to a number of bytes, at the boundary of a rune. A shorter text ends in "…".
func cut(text string, most int) string {
	const dots = "…"
	if len(text) <= most {
		return text
	}
	end := most - len(dots)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// reporter turns a program's name into a qualified name, as reportingController must be.
func reporter(name string) string {
	if len(validation.IsQualifiedName(name)) == 0 {
		return name
	}
	alphanumeric := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	name = strings.Map(func(c rune) rune {
		if alphanumeric(c) || c == '.' || c == '_' {
			return c
		}
		return '-'
	}, name)
	trim := func(c rune) bool { return !alphanumeric(c) }
	name = strings.TrimLeftFunc(name, trim)
	name = strings.TrimRightFunc(name[:min(len(name), 63)], trim)
	if name == "" {
		return "setpoint"
	}
	return name
}

// eventName is the same after a restart and on every replica.
func eventName(reporter string, k *key, note string) string {
	hash := sha256.New()
	for _, part := range []string{reporter, k.group, k.kind, k.namespace, k.name, string(k.uid), string(k.eventType), k.reason, k.action, note} {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	suffix := "." + hex.EncodeToString(hash.Sum(nil)[:10])
	prefix := strings.TrimRight(k.name[:min(len(k.name), validation.DNS1123SubdomainMaxLength-len(suffix))], ".-")
	// Some kinds allow other names, such as system:node.
	if len(validation.IsDNS1123Subdomain(prefix)) > 0 {
		prefix = "event"
	}
	return prefix + suffix
}
