// Package testing is an agent with its tests: a program that lets an agent fix a
// file, and denies everything else. The tests beside it need no key and no
// network, and take milliseconds.
package testing

import (
	"context"
	"path/filepath"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// Fix lets an agent fix one file. The agent may read the directory and edit that
// file.
func Fix(ctx context.Context, file string, opts parley.Options) (string, error) {
	dir, name := filepath.Split(file)
	opts.Cwd = dir
	opts.AllowedTools = []string{"Read", "Edit(" + name + ")"}
	opts.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		return parley.Deny("only " + name + " may be changed"), nil
	}
	res, err := parley.Run(ctx, "Fix the typing errors in "+name+".", &opts)
	if err != nil {
		return "", err
	}
	return res.Result, nil
}
