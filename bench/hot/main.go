// Command hot repeats one of the most frequent operations, for valgrind to count
// its instructions: see make bench-check.
//
//	hot PATH N
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/policy/policytest"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

const (
	delta     = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a few words of an answer"}},"session_id":"0b5ed6ae-55d1-4b8c-8ee8-7ab9ec8d34a5","parent_tool_use_id":null,"uuid":"a35c3d0c-3ad7-4c9b-9d80-1a3ab0a1e9f7"}`
	assistant = `{"type":"assistant","message":{"model":"claude-opus-4-5","id":"msg_0001","type":"message","role":"assistant","content":[{"type":"text","text":"TEXT"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}},"parent_tool_use_id":null,"session_id":"0b5ed6ae-55d1-4b8c-8ee8-7ab9ec8d34a5","uuid":"a35c3d0c-3ad7-4c9b-9d80-1a3ab0a1e9f7"}`
	record    = `{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"the quick brown fox the quick brown fox"},"uuid":"a35c3d0c-3ad7-4c9b-9d80-1a3ab0a1e9f7","timestamp":"2026-01-02T03:04:05.678Z","cwd":"/bench","gitBranch":"main"}`
	request   = `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls -la","description":"Lists"},"tool_use_id":"toolu_1","permission_suggestions":[]}}`
)

// paths are the operations to count.
var paths = map[string]func(n int) error{
	"decode a delta": func(n int) error { return decode(n, delta) },
	"decode a message of 2.4 KB": func(n int) error {
		return decode(n, strings.Replace(assistant, "TEXT", strings.Repeat("the quick brown fox ", 120), 1))
	},
	"decode a permission request": func(n int) error { return decode(n, request) },
	"encode a message of 2.4 KB": func(n int) error {
		m, err := wire.Decode([]byte(strings.Replace(assistant, "TEXT", strings.Repeat("the quick brown fox ", 120), 1)))
		if err != nil {
			return err
		}
		var buf []byte
		for range n {
			if buf, err = wire.AppendMessage(buf[:0], m); err != nil {
				return err
			}
		}
		return nil
	},
	"read lines": func(n int) error {
		r := wire.NewReader(bytes.NewReader(bytes.Repeat([]byte(delta+"\n"), n)), nil)
		for range n {
			if _, err := r.ReadLine(); err != nil {
				return err
			}
		}
		return nil
	},
	"decide about a command": func(n int) error {
		var rules []policy.Rule
		for _, r := range []struct {
			text     string
			behavior wire.PermissionBehavior
		}{{"Bash(git diff:*)", wire.BehaviorAllow}, {"Bash(rm:*)", wire.BehaviorDeny}, {"Read(//etc/shadow)", wire.BehaviorDeny}} {
			rule, err := policy.Parse(r.text, r.behavior, policy.Source{})
			if err != nil {
				return err
			}
			rules = append(rules, rule)
		}
		p := policy.New(rules...)
		req := &policy.Request{
			Tool: &tool.Spec{Name: "Bash"}, Mode: wire.ModeDefault, Roots: []string{os.TempDir()},
			Access: []tool.Access{{Kind: tool.Execute, Command: "git diff --stat | head -20"}},
		}
		for range n {
			p.Decide(req)
		}
		return nil
	},
	"decide with fifty rules": func(n int) error {
		rules, err := policytest.FiftyRules()
		if err != nil {
			return err
		}
		p := policy.New(rules...)
		for i := range n {
			p.Decide(policytest.CostRequest(policytest.FiveCommands[i%len(policytest.FiveCommands)], os.TempDir()))
		}
		return nil
	},
	"hold a turn in process":             func(n int) error { return holdTurns(0, n) },
	"hold a turn in process after 1,000": func(n int) error { return holdTurns(1000, n) },
	"hold a round in process":            func(n int) error { return holdRounds(n) },
	"hold a round in process after 200":  func(n int) error { return holdRounds(200 + n) },
	"search 20 files, lines": func(n int) error {
		return inFiles(20, "needle and hay\n"+strings.Repeat("hay and more hay, as far as one can see\n", 100), func(dir string) error {
			env := &tool.Env{Roots: []string{dir}}
			defer env.Close()
			for range n {
				r, err := grep.New().Run(context.Background(), &tool.Call{Input: []byte(`{"pattern":"needle","output_mode":"content","-C":2}`), Env: env})
				if err != nil || r.IsError {
					return fmt.Errorf("grep: %v", err)
				}
			}
			return nil
		})
	},
	"list 20 sessions the first time": func(n int) error {
		return inFiles(20, strings.Repeat(record+"\n", 50), func(dir string) error {
			for range n {
				if all, err := session.List(context.Background(), &session.Files{Dir: dir}, nil); err != nil || len(all) != 20 {
					return fmt.Errorf("%d sessions, %v", len(all), err)
				}
				if err := os.RemoveAll(filepath.Join(dir, "parley-sessions.gob")); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"read a session of 500 records": func(n int) error {
		return inFiles(1, strings.Repeat(record+"\n", 500), func(dir string) error {
			for range n {
				if _, err := session.Messages(context.Background(), &session.Files{Dir: dir}, fileID(0), nil); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"attach with 500 entries": func(n int) error {
		return inFiles(0, "", func(dir string) error {
			files := &hub.Files{Dir: dir}
			id := session.NewID()
			entries := []hub.Entry{{N: 1, Kind: hub.KindCreated, Time: time.UnixMilli(1e12), Epoch: 1, Data: []byte(`{"session":"` + id + `"}`)}}
			for len(entries) < 500 {
				entries = append(entries, hub.Entry{N: uint64(len(entries)) + 1, Kind: hub.KindFrame, Time: time.UnixMilli(1e12), Epoch: 1, Data: []byte(assistant)})
			}
			entries[499].Data = []byte(`{"type":"result","subtype":"success"}`) // no agent starts
			if err := files.Append(context.Background(), id, 0, entries); err != nil {
				return err
			}
			for range n {
				if err := attach(files, id); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"hold a conversation in process": func(n int) error {
		dir, err := os.MkdirTemp("", "parley-hot-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		model := parleytest.Script(parleytest.Say("hello").Always()).Model()
		opts := &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: model, Store: &session.Memory{}})}
		for range n {
			if _, err := parley.Run(context.Background(), "hi", opts); err != nil {
				return err
			}
		}
		return nil
	},
	"hold a conversation": func(n int) error {
		dir, err := os.MkdirTemp("", "parley-hot-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		model := parleytest.Script(parleytest.Say("hello").Always()).Model()
		for range n {
			if code := agent.Run(context.Background(), agent.Config{Cwd: dir, Model: model}, []string{"-p", "hi"}, strings.NewReader(""), io.Discard, io.Discard); code != 0 {
				return fmt.Errorf("exit status %d", code)
			}
		}
		return nil
	},
}

// attach reads the entries of a session from a new hub, as a viewer receives them.
func attach(files *hub.Files, id string) error {
	none := func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.New("no agent starts") }
	h, err := hub.New(hub.Config{Backend: files, Name: "hot", Agent: none})
	if err != nil {
		return err
	}
	defer h.Close()
	var line []byte
	for e, err := range h.Session(id).Attach(context.Background(), hub.Actor{Name: "hot", Rights: hub.Everything}, 0) {
		if err != nil || e.Kind == hub.KindState {
			return err
		}
		line = e.AppendTo(line[:0])
	}
	return nil
}

// fileID is the name of a file of inFiles, as a session has it.
func fileID(i int) string { return fmt.Sprintf("0b5ed6ae-55d1-4b8c-8ee8-%012d", i) }

// inFiles calls f with a configuration directory that has as many sessions with a text.
func inFiles(many int, text string, f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "parley-hot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	project := filepath.Join(dir, "projects", "-p")
	if err := os.MkdirAll(project, 0o700); err != nil {
		return err
	}
	for i := range many {
		if err := os.WriteFile(filepath.Join(project, fileID(i)+".jsonl"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return f(dir)
}

// holdRounds has an agent in this process read a file so many times in one turn.
func holdRounds(n int) error {
	return inFiles(1, "one\ntwo\nthree\n", func(dir string) error {
		file := filepath.Join(dir, "projects", "-p", fileID(0)+".jsonl")
		model := parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": file}).Times(n), parleytest.Say("Done.")).Model()
		_, err := parley.Run(context.Background(), "hi", &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: model, Store: &session.Memory{}})})
		return err
	})
}

// holdTurns has an agent in this process answer n prompts, one after the other, in a
// conversation that is as long as before turns make it.
func holdTurns(before, n int) error {
	dir, err := os.MkdirTemp("", "parley-hot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	model := parleytest.Script(parleytest.Say("hello").Always()).Model()
	c, err := parley.Connect(ctx, &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: model, Store: &session.Memory{}})})
	if err != nil {
		return err
	}
	defer c.Close()
	for range before + n {
		for _, err := range c.Turn(ctx, "hi") {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func decode(n int, line string) error {
	text := []byte(line)
	var d wire.Decoder
	for i := range n {
		if _, err := d.Decode(text, n-1-i); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) == 1 {
		var names []string
		for name := range paths {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	f := paths[os.Args[1]]
	n, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if f == nil || err != nil {
		fmt.Fprintln(os.Stderr, "hot PATH N")
		os.Exit(2)
	}
	if err := f(n); err != nil {
		fmt.Fprintln(os.Stderr, "hot:", err)
		os.Exit(1)
	}
}
