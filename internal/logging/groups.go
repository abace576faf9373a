// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	mostGroups  = 100  // new ones between two calls of Further
	mostKnown   = 500  // of them, those used last
	mostCounted = 1000 // further ones
	mostText    = 4096 // bytes of an error that count
)

// Groups limits the log lines about errors of many keys. Errors whose texts are equal after mask
// are a group. The zero value is ready for use. It is safe for concurrent use.
type Groups struct {
	mu      sync.Mutex // guards what follows
	seed    maphash.Seed
	known   map[uint64]*group // by the hash of the masked text
	begun   int               // groups since the last call of Further
	errors  int               // of further groups
	further map[uint64]bool
	example string // a key of a further group
}

type group struct {
	*limit

	used time.Time
}

// Few reports whether to log an error of a key, and returns the attributes. It accepts the first
// error of a group at once, and later ones as Repetition.Few does. After mostGroups new groups, it
// only counts errors of further ones.
func (g *Groups) Few(key, text string, args ...any) ([]any, bool) {
	masked := mask(text[:min(len(text), mostText)], parts(key))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.seed, g.known, g.further = maphash.MakeSeed(), map[uint64]*group{}, map[uint64]bool{}
	}
	id := maphash.String(g.seed, masked)
	of := g.known[id]
	if of == nil && g.begun >= mostGroups {
		if g.errors++; len(g.further) < mostCounted {
			g.further[id], g.example = true, key
		}
		return nil, false
	}
	if of == nil {
		g.begun++
		g.makeRoomLocked()
		of = &group{limit: newLimit()}
		g.known[id] = of
	}
	of.used = time.Now()
	return of.allow(args)
}

// makeRoomLocked forgets the group that was not used for the longest time.
func (g *Groups) makeRoomLocked() {
	if len(g.known) < mostKnown {
		return
	}
	var oldest uint64
	for id, of := range g.known {
		if first := g.known[oldest]; first == nil || of.used.Before(first.used) {
			oldest = id
		}
	}
	delete(g.known, oldest)
}

// Further returns the attributes of a line about the further groups since the last call, and
// whether there were any. It allows the next new groups.
func (g *Groups) Further() (args []any, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	args, ok = []any{"errors", g.errors, "groups", len(g.further), "key", g.example}, g.errors > 0
	g.begun, g.errors = 0, 0
	clear(g.further)
	return args, ok
}

// parts returns the names in a key: of default/web, default and web.
func parts(key string) []string {
	return strings.FieldsFunc(key, func(r rune) bool { return !inWord(r) && r != '-' && r != '.' })
}

func inWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// mask replaces what usually differs between errors of one cause: the names of the key, UIDs, and
// outside double quotes also numbers, and words with digits, which are versions or hashes. It
// masks only whole words, but web-config has the name web. A mask that is too weak costs a line;
// one that is too strong hides an error.
func mask(text string, names []string) string {
	var b strings.Builder
	quoted := false
	for text != "" {
		n := strings.IndexFunc(text, func(r rune) bool { return !inWord(r) })
		if n < 0 {
			n = len(text)
		}
		word := text[:n]
		if name := prefix(text, names); name > 0 {
			word, n = "#", name
		} else if isUID(text) {
			word, n = "#", uidLength
		} else if n == 0 {
			quoted, n = quotes(text, quoted)
			word = text[:n]
		} else if !quoted {
			word = number(word)
		}
		b.WriteString(word)
		text = text[n:]
	}
	return b.String()
}

// prefix returns the length of the longest name that text begins with.
func prefix(text string, names []string) (length int) {
	for _, name := range names {
		rest, ok := strings.CutPrefix(text, name)
		if ok && len(name) > length && strings.IndexFunc(rest, inWord) != 0 {
			length = len(name)
		}
	}
	return length
}

// quotes returns the length of the punctuation that text begins with, and whether text in quotes
// follows. A quote that is not closed, as in 19", does not count.
func quotes(text string, quoted bool) (after bool, length int) {
	switch {
	case text[0] == '"':
		return !quoted && strings.Contains(text[1:], `"`), 1
	case text[0] == '\\' && quoted && len(text) > 1:
		return true, 2
	default:
		return quoted, 1
	}
}

const (
	digits    = "0123456789"
	uidLength = 36
)

func isUID(text string) bool {
	return len(text) >= uidLength && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' &&
		strings.Trim(text[:uidLength], digits+"abcdefABCDEF-") == ""
}

// number masks a word with digits: web17 becomes web#, and x7f9k becomes #.
func number(word string) string {
	stem := strings.TrimRight(word, digits)
	switch {
	case strings.ContainsAny(stem, digits):
		return "#"
	case stem != word:
		return stem + "#"
	default:
		return word
	}
}
