// Hooks are guard rails: functions that see every tool call before and after it
// runs, including calls that rules allow. One keeps an agent out of migrations,
// one logs what it did, and one makes the model run the tests before it stops.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	var tested atomic.Bool // hooks run concurrently

	guard := parley.On("Edit|Write", func(ctx context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
		var file struct {
			Path string `json:"file_path"`
		}
		if err := json.Unmarshal(in.ToolInput, &file); err != nil {
			return nil, err // a hook that fails blocks what it guards
		}
		if strings.Contains(file.Path, "migrations/") {
			return parley.HookDeny("migrations are written by people; add a new file in drafts/"), nil
		}
		return nil, nil // no opinion
	})
	audit := parley.On("", func(ctx context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
		fmt.Println("ran:", in.ToolName)
		if in.ToolName == "Bash" {
			tested.Store(true)
		}
		return nil, nil
	})
	insist := parley.On("", func(ctx context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
		if !tested.Load() {
			return parley.HookBlock("run the tests first: sh test.sh"), nil
		}
		return nil, nil
	})

	// The agent works on a copy: the example itself stays unchanged.
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		log.Fatal(err)
	}
	res, err := parley.Run(context.Background(), "Add the column to migrations/001.sql.", &parley.Options{
		Cwd:            dir,
		PermissionMode: wire.ModeAcceptEdits,
		AllowedTools:   []string{"Bash(sh test.sh)"},
		Hooks:          []parley.Hook{guard, audit, insist},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
}
