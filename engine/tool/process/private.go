package process

import (
	"errors"
	"io"
	"os"
)

// Private returns an open file with the given text that a command can read from its
// start, as one of its Files. The file has no name, so that no other command can change
// it. The caller closes it.
func Private(text []byte) (*os.File, error) {
	f, err := unnamed()
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// temporary creates a file and removes its name.
func temporary() (*os.File, error) {
	f, err := os.CreateTemp("", "parley-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
