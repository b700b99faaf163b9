package cli_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/transport"
)

func TestFlagsMeanTheSameAsTheirCommandLine(t *testing.T) {
	for name, flags := range map[string][]transport.Flag{
		"switch":         {{Name: "continue"}, {Name: "fork-session", Values: []string{"true"}}, {Name: "strict-mcp-config", Values: []string{"false"}}},
		"value":          {{Name: "model", Values: []string{"-opus"}}, {Name: "max-turns", Values: []string{"3"}}, {Name: "resume", Values: []string{"a, b"}}},
		"list":           {{Name: "allowedTools", Values: []string{"Bash(git log, git diff)", "Read"}}, {Name: "betas", Values: []string{"a", "b"}}},
		"empty list":     {{Name: "tools", Values: []string{""}}},
		"joined list":    {{Name: "fallback-model", Values: []string{"haiku", "sonnet"}}, {Name: "setting-sources", Values: []string{"user", "local"}}},
		"repeated":       {{Name: "add-dir", Values: []string{"/a"}}, {Name: "add-dir", Values: []string{"/b c"}}},
		"ignored":        {{Name: "brief"}, {Name: "workload", Values: []string{"x"}}},
		"unknown":        {{Name: "modle", Values: []string{"x"}}},
		"refused":        {{Name: "rewind-files", Values: []string{"x"}}},
		"not a choice":   {{Name: "effort", Values: []string{"heroic"}}},
		"not a switch":   {{Name: "continue", Values: []string{"x"}}},
		"not consistent": {{Name: "resume", Values: []string{"x"}}, {Name: "continue"}},
	} {
		spec := transport.Spec{Words: []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}, Flags: flags}
		got, err := cli.ParseSpec(spec.Words, spec.Flags)
		want, wantErr := cli.Parse(spec.Args())
		if !reflect.DeepEqual(err, wantErr) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; the command line %q means %+v, %v", name, got, err, spec.Args(), want, wantErr)
		}
	}
}

// On a command line, a flag without its value takes the next flag as one.
func TestFlagWithoutItsValueTakesNoOther(t *testing.T) {
	flags := []transport.Flag{{Name: "model"}, {Name: "continue"}}
	if _, err := cli.ParseSpec(nil, flags); err == nil || !strings.Contains(err.Error(), "'--model <value>' argument missing") {
		t.Errorf("got %v", err)
	}
	if f, err := cli.Parse(transport.Spec{Flags: flags}.Args()); err != nil || f.Model != "--continue" || f.Continue {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestFlagsFollowWords(t *testing.T) {
	f, err := cli.ParseSpec([]string{"--model", "opus", "--add-dir", "/a"}, []transport.Flag{{Name: "model", Values: []string{"haiku"}}, {Name: "add-dir", Values: []string{"/b"}}})
	if err != nil || f.Model != "haiku" || !slices.Equal(f.AddDirs, []string{"/a", "/b"}) {
		t.Errorf("got %+v, %v", f, err)
	}
}
