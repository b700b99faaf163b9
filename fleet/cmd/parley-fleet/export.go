package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
)

// exportSession writes a session to a file.
func exportSession(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var n natsFlags
	fs := newFlags("export [flags] SESSION FILE", stdout)
	n.add(fs)
	var words []string
	if err := parse(fs, args, &words); err != nil {
		return err
	}
	if len(words) != 2 {
		return usagef("usage: parley-fleet export [flags] SESSION FILE")
	}
	if _, err := os.Lstat(words[1]); err == nil {
		return fmt.Errorf("%s exists already", words[1])
	}
	b, end, err := n.open(ctx, "export")
	if err != nil {
		return err
	}
	defer end()
	file, err := os.CreateTemp(filepath.Dir(words[1]), ".export-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if err := errors.Join(fleet.Export(ctx, b, words[0], file), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), words[1])
}

// importSession adds a session from a file, and prints its id.
func importSession(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var n natsFlags
	fs := newFlags("import [flags] FILE", stdout)
	n.add(fs)
	cwd := fs.String("cwd", "", "the working `DIRECTORY` of the session; empty means the original one")
	var words []string
	if err := parse(fs, args, &words); err != nil {
		return err
	}
	if len(words) != 1 {
		return usagef("usage: parley-fleet import [flags] FILE")
	}
	file, err := os.Open(words[0])
	if err != nil {
		return err
	}
	defer file.Close()
	b, end, err := n.open(ctx, "import")
	if err != nil {
		return err
	}
	defer end()
	id, err := fleet.Import(ctx, b, hub.Actor{Name: "import"}, file, *cwd)
	if err == nil {
		_, err = fmt.Fprintln(stdout, id)
	}
	return err
}
