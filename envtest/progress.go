// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progressEvery is the interval between progress lines when output is not a terminal.
const progressEvery = 10 * time.Second

// progressReport overwrites one line on a terminal; elsewhere it writes a line every progressEvery.
type progressReport struct {
	out io.Writer

	mu       sync.Mutex // guards what follows, and out
	began    time.Time
	step     string // downloading or compiling
	count    int    // packages compiled, or modules downloaded
	total    int    // 0 if unknown
	last     string // latest module or package
	reported bool   // a progress line was printed
}

func (r *progressReport) line(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLocked()
	fmt.Fprintf(r.out, "setpoint: "+format+"\n", args...)
}

func (r *progressReport) begin(step string, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = time.Now()
	}
	r.step, r.count, r.total, r.last = step, 0, total, ""
}

func (r *progressReport) did(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.last = what
}

// took counts a line of a go command, and reports whether it names a download or a package.
func (r *progressReport) took(line string) bool {
	what, downloads := strings.CutPrefix(line, "go: downloading ")
	// go build -v prints a package path alone on its line.
	compiled := line != "" && !strings.ContainsAny(line, " :#\t")
	if downloads || compiled {
		r.did(what)
	}
	return downloads || compiled
}

func (r *progressReport) run(stop <-chan struct{}) {
	every := progressEvery
	terminal := isTerminal(r.out)
	if terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.mu.Lock()
			if terminal {
				fmt.Fprintf(r.out, "\r\x1b[Ksetpoint: %.*s", 110, r.textLocked())
			} else {
				fmt.Fprintf(r.out, "setpoint: %s\n", r.textLocked())
			}
			r.reported = true
			r.mu.Unlock()
		case <-stop:
			return
		}
	}
}

func (r *progressReport) textLocked() string {
	spent := time.Since(r.began).Round(time.Second)
	if r.total > 0 {
		return fmt.Sprintf("%s, %s: %d of at most %d packages", spent, r.step, r.count, r.total)
	}
	text := fmt.Sprintf("%s, %s", spent, r.step)
	if r.last != "" {
		text += fmt.Sprintf(": module %d, %s", r.count, r.last)
	}
	return text
}

func (r *progressReport) end(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLocked()
	if r.reported {
		fmt.Fprintf(r.out, "setpoint: %s in %s\n", what, time.Since(r.began).Round(time.Second))
	}
}

func (r *progressReport) clearLocked() {
	if r.reported && isTerminal(r.out) {
		fmt.Fprint(r.out, "\r\x1b[K")
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !strings.HasSuffix(f.Name(), "null")
}
