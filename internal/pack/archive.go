package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"time"
)

// released is the time of every file in an archive, so that the same files produce the same
// archive.
var released = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func tarred(files []file) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: released}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return out.Bytes(), err
}

func zipped(files []file) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range files {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: released})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}
