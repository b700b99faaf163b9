package main

import (
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/fleet"
)

// backup writes all sessions to a directory.
func backup(ctx context.Context, args []string, stdout, _ io.Writer) error {
	return copyFleet(ctx, "backup --to DIRECTORY", "to", args, stdout, fleet.Backup)
}

// restore reads a backup.
func restore(ctx context.Context, args []string, stdout, _ io.Writer) error {
	return copyFleet(ctx, "restore --from DIRECTORY", "from", args, stdout, fleet.Restore)
}

func copyFleet(ctx context.Context, name, flag string, args []string, stdout io.Writer, f func(context.Context, *nats.Conn, string, string, func(string)) error) error {
	var n natsFlags
	fs := newFlags(name, stdout)
	n.add(fs)
	dir := fs.String(flag, "", "the `DIRECTORY` of the backup")
	if err := parse(fs, args, nil); err != nil {
		return err
	}
	if *dir == "" {
		return usagef("it needs --%s DIRECTORY", flag)
	}
	nc, err := n.connect("parley-fleet " + name)
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(ctx, nc, n.fleet, *dir, func(step string) { fmt.Fprintln(stdout, step) })
}
