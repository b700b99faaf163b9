package bash_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// bashrc writes the user's startup file.
func bashrc(t *testing.T, env *tool.Env, text string) string {
	t.Helper()
	file := filepath.Join(env.Home, ".bashrc")
	if err := os.MkdirAll(env.Home, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// Commands have the definitions of the user's ~/.bashrc. It is read once for many
// conversations, and no file of the project is.
func TestSnapshot(t *testing.T) {
	env := tooltest.Env(t)
	bashrc(t, env, `case $- in *i*) ;; *) return ;; esac
echo read >>~/count; echo noise; echo noise >&2
greet() { echo "hello $1 from $(pwd)"; }
_complete_me() { :; }
alias say='echo said' rm='rm -i'
shopt -s extglob globstar
has_ext() { case $1 in *.@(c|h)) echo yes;; esac; }
export PATH="$PATH:$HOME/bin" SECRET=1
complete -F _complete_me greet
cd / # where it leaves the shell does not matter
`)
	tooltest.Write(t, env, ".bashrc", "touch /tmp/never-$$; echo evil")
	b := bash.New(&bash.Options{Snapshot: new(bash.Snapshot)})
	r := tooltest.Do(t, env, b, "command", `greet you; say it; has_ext a.c; type -t _complete_me; echo ${SECRET-unset} ${PATH##*:}; shopt -q globstar && echo globstar; touch x; rm x; ls`)
	want := "hello you from " + env.Roots[0] + "\nsaid it\nyes\nunset " + env.Home + "/bin\nglobstar"
	if r.Content.Text != want {
		t.Errorf("%q, want %q", r.Content.Text, want)
	}
	other := tooltest.Env(t)
	other.Home, other.Environ = env.Home, env.Environ
	if r := tooltest.Do(t, other, b, "command", "greet me"); !strings.HasPrefix(r.Content.Text, "hello me from ") {
		t.Errorf("%q", r.Content.Text)
	}
	if data, _ := os.ReadFile(filepath.Join(env.Home, "count")); string(data) != "read\n" {
		t.Errorf("the file was read %q", data)
	}
	// Without a snapshot none of it is defined.
	if r := tooltest.Do(t, env, bash.New(nil), "command", "type -t greet say || echo none"); r.Content.Text != "none" {
		t.Errorf("%q", r.Content.Text)
	}
	// A home directory that the model can write to is not trusted.
	inside := tooltest.Env(t)
	inside.Home = inside.Roots[0]
	bashrc(t, inside, "touch ~/ran; bad() { echo bad; }")
	if r := tooltest.Do(t, inside, bash.New(&bash.Options{Snapshot: new(bash.Snapshot)}), "command", "type -t bad || ls"); r.Content.Text != "(Bash completed with no output)" {
		t.Errorf("%q", r.Content.Text)
	}
}

// A startup file that does not end is stopped with its processes. Commands run without
// it, and the model receives one note.
func TestSnapshotHangs(t *testing.T) {
	env := tooltest.Env(t)
	bashrc(t, env, "sh -c 'echo $$ >~/pid; exec sleep 1000'; f() { :; }")
	var b tool.Tool
	var r *tool.Result
	// On a busy machine the time may be up before the file has reached its command.
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		b = bash.New(&bash.Options{Snapshot: &bash.Snapshot{Timeout: limit}})
		r = tooltest.Do(t, env, b, "command", "echo ran")
		if data, _ := os.ReadFile(filepath.Join(env.Home, "pid")); len(data) > 0 {
			break
		}
	}
	if !strings.HasPrefix(r.Content.Text, "ran\n(Note: the user's ~/.bashrc did not end in time") {
		t.Errorf("%q", r.Content.Text)
	}
	mustVanish(t, pid(t, filepath.Join(env.Home, "pid")))
	if r := tooltest.Do(t, env, b, "command", "echo ran"); r.Content.Text != "ran" {
		t.Errorf("%q", r.Content.Text)
	}
}
