// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// A file goes into an archive.
type file struct {
	name string // in the archive
	from string
	mode fs.FileMode
}

// pack returns a zip or a compressed tar, by the name of the archive. Without times and owners in
// it, the same files give the same bytes.
func pack(archive string, files []file) ([]byte, error) {
	add := addToTar
	if strings.HasSuffix(archive, ".zip") {
		add = addToZip
	}
	var out bytes.Buffer
	if err := add(&out, files); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func addToTar(out *bytes.Buffer, files []file) error {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		text, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(text)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

func addToZip(out *bytes.Buffer, files []file) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		text, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(text); err != nil {
			return err
		}
	}
	return w.Close()
}
