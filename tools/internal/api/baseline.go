// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	heading = "# The exported API of package "
	remark  = ", written by 'make api'.\n"
)

// Files returns the text of each file of the baseline, by its path below the folder api.
func (b Baseline) Files() map[string]string {
	files := map[string]string{}
	for name, lines := range b {
		files[name+".txt"] = heading + name + remark + strings.Join(lines, "\n") + "\n"
	}
	return files
}

// Add parses one file of a baseline. It returns false if the file is none.
func (b Baseline) Add(file, text string) bool {
	head, rest, _ := strings.Cut(text, "\n")
	if !strings.HasPrefix(head, heading) || path.Ext(file) != ".txt" {
		return false
	}
	b[strings.TrimSuffix(file, ".txt")] = slices.DeleteFunc(strings.Split(rest, "\n"), func(l string) bool { return l == "" })
	return true
}

// Read returns the baseline in the folder dir.
func Read(dir string) (Baseline, error) {
	found := Baseline{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil {
			found.Add(name, string(text))
		}
		return err
	})
	if os.IsNotExist(err) {
		err = nil
	}
	return found, err
}

// Write replaces the folder dir.
func (b Baseline) Write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, text := range b.Files() {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
