package socket

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestChainOfProcesses checks the walk that decides on every system who may use the hub,
// with invented processes.
func TestChainOfProcesses(t *testing.T) {
	hub := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	before, after := hub.Add(-time.Hour), hub.Add(time.Second)
	hidden := errors.New("not permitted")
	type system map[int]process
	for _, c := range []struct {
		name  string
		procs system
		macOS bool
		want  string // part of the error; empty means that the process 100 may use the hub
	}{
		{"a shell in a terminal", system{100: {parent: 90}, 90: {parent: 80, unread: hidden}, 80: {parent: 1}}, false, ""},
		{"a peer that is gone", system{}, false, "cannot be checked"},
		{"a peer that cannot be read", system{100: {parent: 1, unread: hidden}}, false, "cannot be checked"},
		{"a child of the hub", system{100: {parent: os.Getpid()}}, false, "may not use the hub"},
		{"a grandchild of the hub", system{100: {parent: 90}, 90: {parent: os.Getpid()}}, false, "may not use the hub"},
		{"a child of another agent", system{100: {parent: 90}, 90: {parent: 1, ours: true}}, false, "may not use the hub"},
		{"this program itself, as a client", system{100: {parent: 90, ours: true}, 90: {parent: 1}}, false, ""},
		{"a mark", system{100: {parent: 1, env: []byte("HOME=/\x00CLAUDECODE=1\x00")}}, false, "may not use the hub"},
		{"a mark of an ancestor", system{100: {parent: 90}, 90: {parent: 1, env: []byte("PARLEY_CONN_ID=x\x00")}}, false, "may not use the hub"},
		{"an ancestor that is gone", system{100: {parent: 90}}, false, "cannot be checked"},
		{"a circle", system{100: {parent: 90}, 90: {parent: 100}}, false, "too many ancestors"},

		{"macOS: a shell in a terminal", system{100: {parent: 90, started: after}, 90: {parent: 1, started: before}}, true, ""},
		{"macOS: an orphan", system{100: {parent: 1, started: after}}, true, "without a parent that is older"},
		{"macOS: a child of an orphan", system{100: {parent: 90, started: after}, 90: {parent: 1, started: after}}, true, "without a parent that is older"},
		{"macOS: an orphan of the hub's first moment", system{100: {parent: 1, started: hub}}, true, "without a parent that is older"},
		{"macOS: an orphan below login", system{100: {parent: 90, started: after}, 90: {parent: 1, started: after, unread: hidden}}, true, "without a parent that is older"},
		{"macOS: a child of the hub", system{100: {parent: os.Getpid(), started: after}}, true, "may not use the hub"},
	} {
		t.Run(c.name, func(t *testing.T) {
			since := time.Time{}
			if c.macOS {
				since = hub
			}
			err := checkChain(100, func(pid int) (process, error) {
				p, ok := c.procs[pid]
				if !ok {
					return p, os.ErrProcessDone
				}
				return p, nil
			}, since)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestArgumentsOfAProcess parses the arguments of a process, as macOS returns them.
func TestArgumentsOfAProcess(t *testing.T) {
	raw := func(count uint32, text string) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, count), text...)
	}
	exe, env, err := parseArguments(raw(2, "/bin/sh\x00\x00\x00\x00sh\x00-c\x00HOME=/\x00CLAUDECODE=1\x00\x00"))
	if err != nil || exe != "/bin/sh" || !strings.HasPrefix(string(env), "HOME=/\x00") || !errors.Is(checkMarks(env), errSession) {
		t.Errorf("got %q, %q, %v", exe, env, err)
	}
	if exe, env, err := parseArguments(raw(1, "/bin/sh\x00sh\x00")); err != nil || exe != "/bin/sh" || len(env) != 0 {
		t.Errorf("without an environment: %q, %q, %v", exe, env, err)
	}
	for _, bad := range [][]byte{nil, {1}, raw(3, "/bin/sh\x00sh\x00"), raw(1<<31, "/bin/sh\x00sh\x00"), raw(1, "/bin/sh")} {
		if _, _, err := parseArguments(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
