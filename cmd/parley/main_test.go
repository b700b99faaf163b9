package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/interop"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/wire"
)

var update = flag.Bool("update", false, "rewrite what the tests compare with")

func TestMain(m *testing.M) {
	peer.RunIfChild()
	testscript.Main(tests{m}, map[string]func(){"parley": main, "ask": func() { os.Exit(ask(os.Args[1:])) }, "driver": func() { os.Exit(drive(os.Args[1:])) },
		"editor": func() { os.Exit(edit(os.Args[1:])) }})
}

// TestScripts plays the command lines of testdata/script. Beyond the commands of
// testscript there are
//
//	exits N COMMAND ARGS…   runs a command that exits with that status
//	freeport NAME           sets a variable to a port that is free
//	waitport PORT           waits until a program listens there
//
// and the program ask, a small agent.
func TestScripts(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "script"), func(*testscript.Env) {})
}

// TestBackground plays the command lines of testdata/background, which are about the hub.
func TestBackground(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "background"), func(env *testscript.Env) {
		hub := filepath.Join(env.WorkDir, "c", "hub", "socket")
		env.Defer(func() { endHub(t, hub) })
	})
}

// runScripts plays scripts. The command is the one that is shipped: it starts in a third of
// the time of this test, and the hub rejects a process that descends from its own program,
// such as this test.
func runScripts(t *testing.T, dir string, setup func(*testscript.Env)) {
	bin := t.TempDir()
	build(t, filepath.Join(bin, "parley"))
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			// Otherwise an exit of ask takes a second with the race detector.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			setup(env)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				want, err := strconv.Atoi(args[0])
				if err != nil || neg || len(args) < 2 {
					ts.Fatalf("usage: exits N COMMAND ARGS…")
				}
				err = ts.Exec(args[1], args[2:]...)
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					ts.Fatalf("%v", err)
				}
				got := 0
				if exit != nil {
					got = exit.ExitCode()
				}
				if got != want {
					ts.Fatalf("exit status %d, want %d", got, want)
				}
			},
			"freeport": func(ts *testscript.TestScript, _ bool, args []string) {
				_, port, err := net.SplitHostPort(testwait.Address())
				ts.Check(err)
				ts.Setenv(args[0], port)
			},
			// waitport waits until a program listens at a port.
			"waitport": func(ts *testscript.TestScript, _ bool, args []string) {
				testwait.Until(t, "a program listens at "+args[0], func() bool {
					c, err := net.Dial("tcp", "127.0.0.1:"+args[0])
					if err == nil {
						c.Close()
					}
					return err == nil
				})
			},
			// takenport sets a variable to a port that is in use while the script runs.
			"takenport": func(ts *testscript.TestScript, _ bool, args []string) {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				ts.Check(err)
				ts.Defer(func() { ln.Close() })
				ts.Setenv(args[0], strconv.Itoa(ln.Addr().(*net.TCPAddr).Port))
			},
		},
	})
}

// ask is an agent in a few lines: it sends its arguments to the API that the environment
// names, each as a prompt of one conversation, runs the model's calls of its one tool,
// Read, and prints the model's text. With --bad it sends a request that the API rejects.
func ask(prompts []string) int {
	bad := len(prompts) > 0 && prompts[0] == "--bad"
	if bad {
		prompts = prompts[1:]
	}
	var messages []any
	for _, prompt := range prompts {
		messages = append(messages, map[string]any{"role": "user", "content": prompt})
		for {
			body := map[string]any{
				"model": "claude-test", "max_tokens": 1000, "messages": messages,
				"tools": []any{map[string]any{"name": "Read", "description": "Reads a file.", "input_schema": map[string]any{"type": "object"}}},
			}
			if bad {
				delete(body, "max_tokens")
			}
			status, answer, err := post(os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", body)
			if err != nil || status != http.StatusOK {
				fmt.Fprintf(os.Stderr, "ask: %d %s %v\n", status, answer, err)
				return 3
			}
			var m struct {
				Content []struct {
					Type, Text, ID string
					Input          struct {
						FilePath string `json:"file_path"`
					}
				}
			}
			if err := json.Unmarshal(answer, &m); err != nil {
				fmt.Fprintln(os.Stderr, "ask:", err)
				return 3
			}
			var whole struct{ Content json.RawMessage }
			_ = json.Unmarshal(answer, &whole) // it just was
			messages = append(messages, map[string]any{"role": "assistant", "content": whole.Content})
			var results []any
			for _, b := range m.Content {
				switch b.Type {
				case "text":
					fmt.Println(b.Text)
				case "tool_use":
					data, err := os.ReadFile(b.Input.FilePath)
					text := string(data)
					if err != nil {
						text = "no such file"
					}
					results = append(results, map[string]any{"type": "tool_result", "tool_use_id": b.ID, "content": text, "is_error": err != nil})
				}
			}
			if len(results) == 0 {
				break
			}
			messages = append(messages, map[string]any{"role": "user", "content": results})
		}
	}
	return 0
}

// post posts JSON to an API, which may not be listening yet.
func post(url string, body any) (int, []byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	for ; ; testwait.Pause(10 * time.Millisecond) {
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(data))
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("content-type", "application/json")
		req.Header.Set("anthropic-version", "2023-06-01")
		req.Header.Set("x-api-key", os.Getenv("ANTHROPIC_API_KEY"))
		resp, err := http.DefaultClient.Do(req)
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return resp.StatusCode, answer, err
	}
}

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"fakeapi": "fake-api", "fake_cli": "fake-cli", "fake-ap": "fake-api", "fkae-api": "fake-api", "fake": "fake-api or fake-cli or fake-host",
		"recrod": "record", "repaly": "replay", "versoin": "version", "hlep": "help",
		"": "", "hello": "", "explain": "", "-p": "", "help me with this": "", "fix": "", "replace": "",
	} {
		if got := nearest(word); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestOwnFlags(t *testing.T) {
	for _, c := range []struct{ args, own, rest []string }{
		{[]string{"--script", "a", "--output-format", "stream-json"}, []string{"--script", "a"}, []string{"--output-format", "stream-json"}},
		{[]string{"--script=a", "--exact", "-p", "--script", "b"}, []string{"--script=a", "--exact"}, []string{"-p", "--script", "b"}},
		{[]string{"--script", "a", "--", "--record", "b"}, []string{"--script", "a"}, []string{"--record", "b"}},
		{[]string{"--version"}, nil, []string{"--version"}},
		{[]string{"--help"}, []string{"--help"}, nil},
		{[]string{"--script"}, []string{"--script"}, nil},
		{nil, nil, nil},
	} {
		fs := newFlags(&process{stdout: io.Discard}, "x", "", "")
		new(fake).flags(fs)
		own, rest := ownFlags(fs, c.args)
		if fmt.Sprint(own, len(own), rest) != fmt.Sprint(c.own, len(c.own), c.rest) {
			t.Errorf("%q: %q and %q", c.args, own, rest)
		}
	}
}

func TestClientEnv(t *testing.T) {
	p := &process{env: []string{"A=1", "ANTHROPIC_AUTH_TOKEN=x", "no_proxy=corp", "A=2"}}
	env := clientEnv(p, elsewhere)
	if got, want := fmt.Sprint(env), "[A=1 A=2 NO_PROXY=127.0.0.1,localhost,::1,corp no_proxy=127.0.0.1,localhost,::1,corp]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if p.getenv("A") != "2" || p.getenv("B") != "" {
		t.Errorf("getenv: %q, %q", p.getenv("A"), p.getenv("B"))
	}
}

// drive is a program with our SDK that runs a job: see interop/go.
func drive(args []string) int {
	text, err := os.ReadFile(args[0])
	var job interop.Job
	if err == nil {
		err = json.Unmarshal(text, &job)
	}
	var events []interop.Event
	if err == nil {
		events, err = interop.GoSDK{}.Drive(context.Background(), &job)
	}
	for _, e := range events {
		err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(e))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// edit is the program editor: it sends a prompt to an agent that speaks the Agent Client
// Protocol, and allows every call.
func edit(args []string) int {
	_, err := parley.Run(context.Background(), args[1], &parley.Options{Dialer: &acp.Agent{Command: args[:1]}, CanUseTool: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
		return parley.Allow(), nil
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
