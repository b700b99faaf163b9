package transport

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		env  Environment
		want []string
	}{
		{"nothing", Environment{}, []string{"CLAUDE_CODE_ENTRYPOINT=sdk-go"}},
		{
			"inherited",
			Environment{
				Inherited: []string{
					"Z=1", "A=1", "A=2", "EMPTY=", "EQ=a=b", "broken", "",
					"NODE_OPTIONS=--inspect", "CLAUDECODE=1", "DEBUG=*", "PWD=/elsewhere",
					"CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_AGENT_SDK_VERSION=0",
				},
				Version: "1.2.3",
				Dir:     dir,
			},
			[]string{
				"A=2", "CLAUDE_AGENT_SDK_VERSION=1.2.3", "CLAUDE_CODE_ENTRYPOINT=sdk-go",
				"EMPTY=", "EQ=a=b", "PWD=" + dir, "Z=1",
			},
		},
		{
			"additions win, save over the version",
			Environment{
				Inherited: []string{"A=1", "B=1", "PWD=/elsewhere"},
				Additions: []string{
					"A=2", "B", "CLAUDE_CODE_ENTRYPOINT=mine", "CLAUDE_AGENT_SDK_VERSION=9",
					"NODE_OPTIONS=x", "CLAUDECODE=1", "DEBUG=mine", "PWD=/there",
				},
				Version: "1.2.3",
				Dir:     dir,
				Debug:   true,
			},
			[]string{
				"A=2", "CLAUDECODE=1", "CLAUDE_AGENT_SDK_VERSION=1.2.3", "CLAUDE_CODE_ENTRYPOINT=mine",
				"DEBUG=mine", "NODE_OPTIONS=x", "PWD=/there",
			},
		},
		{
			"debug",
			Environment{Inherited: []string{"DEBUG=*"}, Debug: true},
			[]string{"CLAUDE_CODE_ENTRYPOINT=sdk-go", "DEBUG=1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.env.Inherited)
			if got := tt.env.Environ(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
			if !slices.Equal(before, tt.env.Inherited) {
				t.Error("the caller's list was changed")
			}
		})
	}
	abs, err := filepath.Abs("x")
	if err != nil {
		t.Fatal(err)
	}
	if got := (Environment{Dir: "x"}).Environ(); !slices.Contains(got, "PWD="+abs) {
		t.Errorf("PWD is not absolute in %q", got)
	}
}

func TestVariablesFold(t *testing.T) {
	vars := newVariables(true)
	for _, kv := range []string{"Path=a", "PATH=b", `=C:=C:\dir`} {
		vars.apply(kv)
	}
	if got, want := vars.list(), []string{`=C:=C:\dir`, "PATH=b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := vars.get("path"); got != "b" {
		t.Errorf("got %q", got)
	}
}
