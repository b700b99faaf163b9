package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Backup writes all sessions of a running fleet to a directory that is empty or does not exist.
// Entries that are accepted meanwhile may be part of it.
func Backup(ctx context.Context, nc *nats.Conn, fleet, dir string, report func(string)) error {
	if s, err := stateOf(ctx, nc, fleet+"-"+logStream); err != nil || s == nil {
		return errors.Join(fmt.Errorf("fleet: there is no fleet %q to write a backup of", fleet), err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		return errors.Join(fmt.Errorf("fleet: %s is not empty: a backup needs a directory of its own", dir), err)
	}
	return writeSnapshots(ctx, nc, keptStreams(fleet), dir, report)
}

// Restore reads a backup into a fleet without sessions. It keeps the number of replicas. Start
// workers after it.
func Restore(ctx context.Context, nc *nats.Conn, fleet, dir string, report func(string)) error {
	if _, err := os.Stat(filepath.Join(dir, fleet+"-"+logStream)); err != nil {
		return fmt.Errorf("fleet: %s is not a backup of the fleet %s: %w", dir, fleet, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	info, err := js.Stream(ctx, fleet+"-"+logStream)
	if err != nil {
		return fmt.Errorf("fleet: there is no fleet %q: start a node first (%w)", fleet, err)
	}
	if n := info.CachedInfo().State.Msgs; n > 0 {
		return fmt.Errorf("fleet: the fleet %s has sessions (%d messages): a backup is restored into an empty one", fleet, n)
	}
	replicas := info.CachedInfo().Config.Replicas
	for _, stream := range keptStreams(fleet) {
		if err := restoreStream(ctx, nc, js, dir, stream, replicas, report); err != nil {
			return err
		}
	}
	return nil
}
