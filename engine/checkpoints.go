package engine

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/internal/checkpoint"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// ErrNoCheckpoint means that no file contents were recorded before a message.
var ErrNoCheckpoint = checkpoint.ErrNoCheckpoint

// ErrCheckpointsOff means that file contents are not recorded.
var ErrCheckpointsOff = errors.New("File rewinding is not enabled.")

// checkpoints records the contents of files before each prompt. Its methods are called by the
// owner of the conversation.
type checkpoints struct {
	keeper   *checkpoint.Keeper                           // nil if file contents are not recorded
	loadPart func(part string) ([]json.RawMessage, error) // see [Config]; nil keeps them in memory
	env      *tool.Env
	rec      *recorder.Recorder
	busy     func() bool // a turn runs
	*permissions
}

// newKeeper returns a keeper that stores files in a part of the session, or in memory
// if the session is not stored.
func (c *checkpoints) newKeeper() *checkpoint.Keeper {
	place := c.rec.Place()
	if place.Log == nil || c.loadPart == nil {
		var mu sync.Mutex
		var records []json.RawMessage
		return &checkpoint.Keeper{
			Append: func(entries ...*session.Entry) error {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range entries {
					m := maps.Clone(e.Fields)
					m["type"] = mustJSON(e.Type)
					records = append(records, mustJSON(m))
				}
				return nil
			},
			Load: func() ([]json.RawMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				return records, nil
			},
		}
	}
	part := sync.OnceValues(func() (session.Log, error) { return place.Log.Sub(checkpoint.Part) })
	load := c.loadPart
	return &checkpoint.Keeper{
		Append: func(entries ...*session.Entry) error {
			log, err := part()
			if err != nil {
				return err
			}
			return log.Append(entries...)
		},
		Load: func() ([]json.RawMessage, error) { return load(checkpoint.Part) },
	}
}

// Rewind restores files to their contents before a prompt. If dry is set, it only
// reports what it would do. Files that somebody else has changed since are left alone
// and named.
func (c *checkpoints) Rewind(uuid string, dry bool) (*wire.RewindFilesResponse, error) {
	if c.keeper == nil {
		return nil, ErrCheckpointsOff
	}
	if !dry && c.busy() {
		return nil, errors.New("Files cannot be rewound while a turn runs. Interrupt it first.")
	}
	var roots []string
	for _, root := range c.Roots() {
		if real := files.Pin(c.env, root); real != "" {
			roots = append(roots, real)
		}
	}
	r, err := c.keeper.Rewind(uuid, roots, dry)
	if err != nil {
		return nil, err
	}
	out := &wire.RewindFilesResponse{CanRewind: true, FilesChanged: r.Changed, Insertions: new(int64(r.Insertions)), Deletions: new(int64(r.Deletions))}
	out.Extra = map[string]json.RawMessage{}
	if r.Links > 0 || !dry {
		out.SkippedLinks = new(int64(r.Links))
	}
	var words []string
	list := func(name, text string, paths []string) {
		if len(paths) > 0 {
			out.Extra[name] = mustJSON(paths)
			words = append(words, text+strings.Join(paths, ", "))
		}
	}
	list("conflicts", "Left as they are, because somebody else changed them since: ", r.Conflicts)
	list("skippedFiles", "Left as they are, because they are outside the working directories or were not kept: ", r.Skipped)
	if r.Uncovered {
		out.Extra["uncovered"] = json.RawMessage("true")
		words = append(words, "Commands may have changed files that were not kept, because there were too many or too big ones, or because the agent ended while they ran.")
	}
	out.Error = strings.Join(words, " ")
	return out, nil
}
