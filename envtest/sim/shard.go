// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"
)

// shardRange is one range of a shard selector: a field, and its hash's bounds.
var shardRange = regexp.MustCompile(`^\s*shardRange\(\s*([\w.]+)\s*,\s*['"](\w*)['"]\s*,\s*['"](\w*)['"]\s*\)\s*$`)

// bound is a bound of a range: 16 digits, or the end of all.
var bound = regexp.MustCompile(`^0x([0-9a-f]{16}|10000000000000000)$`)

// parseShard reads a shardSelector parameter: ranges joined by ||, all of one field.
func parseShard(expr string) (sharding.Selector, error) {
	var all []sharding.ShardRangeRequirement
	for part := range strings.SplitSeq(expr, "||") {
		m := shardRange.FindStringSubmatch(part)
		switch {
		case m == nil:
			return nil, fmt.Errorf("invalid shard selector: %q is not shardRange(field, '0x…', '0x…')", part)
		case m[1] != "object.metadata.uid" && m[1] != "object.metadata.namespace":
			return nil, fmt.Errorf("invalid shard selector: unsupported field path %q; supported: object.metadata.uid, object.metadata.namespace", m[1])
		case !bound.MatchString(m[2]) || !bound.MatchString(m[3]):
			return nil, fmt.Errorf("invalid shard selector: %q and %q must be 0x-prefixed 16-digit hex values", m[2], m[3])
		case !sharding.HexLess(m[2], m[3]):
			return nil, fmt.Errorf("invalid shard selector: shard range start %s must be less than end %s", m[2], m[3])
		case len(all) > 0 && all[0].Key != m[1]:
			return nil, fmt.Errorf("invalid shard selector: all shard ranges must use the same field, got %q and %q", m[1], all[0].Key)
		}
		all = append(all, sharding.ShardRangeRequirement{Key: m[1], Start: m[2], End: m[3]})
	}
	return sharding.NewSelector(all...), nil
}
