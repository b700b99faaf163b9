package peer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
)

// replay plays both sides of a transcript against each other.
func replay(t *testing.T, path string, exact bool) {
	t.Helper()
	var scripts [2]*peer.Script
	for _, side := range []peer.Side{peer.CLI, peer.Host} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := peer.FromTranscript(f, &peer.TranscriptOptions{Name: filepath.Base(path), Side: side, Exact: exact})
		f.Close()
		if err != nil {
			if side == peer.Host && strings.Contains(err.Error(), "only described") {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		scripts[side] = s
	}
	opts := &peer.Options{Timeout: 20 * time.Second}
	d := &peer.Dialer{Script: scripts[peer.CLI], Options: opts, Done: func(_ *peer.Report, err error) {
		if err != nil {
			t.Errorf("the CLI: %v", err)
		}
	}}
	c, err := d.Dial(t.Context(), transport.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	_, err = peer.Play(t.Context(), scripts[peer.Host], c, closeWriter{c}, &peer.Options{
		Timeout: 20 * time.Second,
		Wait: func(ctx context.Context) (int, error) {
			exit, err := c.Wait(ctx)
			return exit.Code, err
		},
		Signal: func(os.Signal) error { return nil },
	})
	if err != nil {
		t.Errorf("the host: %v", err)
	}
	if t.Failed() {
		t.Logf("%.4000s\n%.4000s", scripts[0], scripts[1])
	}
}

func TestTranscripts(t *testing.T) {
	dirs := []string{filepath.Join("testdata", "transcripts")}
	if dir := os.Getenv("PARLEY_TRANSCRIPTS"); dir != "" {
		dirs = append(dirs, dir)
	} else {
		t.Log("set PARLEY_TRANSCRIPTS to a directory to replay the transcripts in it, too")
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no transcripts in %s: %v", dir, err)
		}
		for _, f := range files {
			t.Run(filepath.Base(f), func(t *testing.T) { replay(t, f, false) })
			t.Run(filepath.Base(f)+"/exact", func(t *testing.T) { replay(t, f, true) })
		}
	}
}

func TestTranscriptRefused(t *testing.T) {
	for text, want := range map[string]string{
		"nonsense\n":                             "x:1: not a transcript line",
		`{"dir":"in","msg":{}}` + "\n[1]\n":      "x:2: not a transcript line",
		`{"msg":{}}` + "\n":                      `x:1: not a transcript line: no "dir"`,
		`{"dir":"sideways","msg":{}}` + "\n":     `x:1: unknown dir "sideways"`,
		`{"dir":"exit","msg":"soon"}` + "\n":     "x:1: bad exit event",
		`{"dir":"out","msg":{"_note":"big"}}`:    "x:1: the frame is only described",
		`{"dir":"argv","t_ms":0,"msg":{"a":1}}`:  "x:1: bad argv event",
		`{"dir":"stderr","t_ms":0,"msg":["no"]}`: "x:1: bad stderr event",
	} {
		_, err := peer.FromTranscript(strings.NewReader(text), &peer.TranscriptOptions{Name: "x"})
		var se *peer.ScriptError
		if !errors.As(err, &se) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
