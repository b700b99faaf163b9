package bash

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/process"
)

// A Snapshot holds the functions, aliases, options and path that the user's ~/.bashrc
// defines, so that commands have them without reading that file each time. It is taken
// before the first command and kept; several tools can share one. Its zero value is
// ready for use. It is safe for concurrent use.
//
// The file is read by an interactive shell, without a terminal, in the home directory,
// with the environment of commands. It is not read if the home directory is inside a
// root, because the model may write to it then.
type Snapshot struct {
	// Timeout is how long the file may take; five seconds if zero. A file that takes
	// longer is stopped, and commands run without it.
	Timeout time.Duration

	mu   sync.Mutex
	made map[string]*snapshotFile // by home
}

// snapshotFile is the snapshot of one home directory.
type snapshotFile struct {
	once   sync.Once
	script []byte
	err    error
}

// maxSnapshot is the maximum size of a snapshot in bytes.
const maxSnapshot = 1 << 20

// taking is the script that the shell runs after it has read its file: it prints the
// definitions. Functions for completion and aliases that would ask questions are left
// out.
const taking = `{
for o in dotglob extglob failglob globstar nocaseglob nocasematch nullglob xpg_echo; do shopt -p $o; done
for o in noclobber pipefail; do case :$SHELLOPTS: in *:$o:*) echo "set -o $o";; esac; done
compgen -A function | while IFS= read -r f; do case $f in _*) ;; *) declare -f -- "$f";; esac; done
alias -p | while IFS= read -r a; do case $a in
"alias rm="*-*i*|"alias cp="*-*i*|"alias mv="*-*i*|"alias ln="*-*i*) ;;
*) printf '%s\n' "$a";; esac; done
printf 'export PATH=%q\n' "$PATH"
echo '# whole'
} 2>/dev/null >&3
exit 0`

// script returns the script that each shell reads first; nil if there is nothing to
// read.
func (s *Snapshot) script(env *tool.Env, shell string) ([]byte, error) {
	if s == nil || env.Home == "" || filepath.Base(shell) != "bash" || slices.ContainsFunc(files.RealRoots(env), func(root string) bool { return files.Within(root, env.Home) }) {
		return nil, nil
	}
	if info, err := os.Stat(filepath.Join(env.Home, ".bashrc")); err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	s.mu.Lock()
	if s.made == nil {
		s.made = map[string]*snapshotFile{}
	}
	t := s.made[env.Home]
	if t == nil {
		t = new(snapshotFile)
		s.made[env.Home] = t
	}
	s.mu.Unlock()
	t.once.Do(func() { t.script, t.err = runSnapshot(env, shell, orElse(s.Timeout, 5*time.Second)) })
	return t.script, t.err
}

// runSnapshot runs the shell.
func runSnapshot(env *tool.Env, shell string, timeout time.Duration) ([]byte, error) {
	whole := []byte("# whole\n")
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	spool := process.NewSpool(nil, 1<<20, nil)
	tree, err := process.Start(&process.Command{Args: []string{shell, "-i", "-c", taking}, Dir: env.Home, Env: environment(env, env.Home), Files: []*os.File{w}, Output: spool, Session: true})
	w.Close()
	if err != nil {
		return nil, err
	}
	r.SetReadDeadline(time.Now().Add(timeout))
	var data []byte
	for buf := make([]byte, 32<<10); len(data) < maxSnapshot && !bytes.HasSuffix(data, whole); {
		n, err := r.Read(buf)
		data = append(data, buf[:n]...)
		if err != nil {
			break
		}
	}
	tree.Stop()
	script, ok := bytes.CutSuffix(data, whole)
	if !ok {
		return nil, errors.New("the user's ~/.bashrc did not end in time, or defines too much; commands run without it")
	}
	return script, nil
}

type notedKey struct{}

// snapshot returns the script that each shell reads first, or nil. note explains to the
// model why there is none, once.
func (t *Tool) snapshot(env *tool.Env, shell string) (script []byte, note string) {
	if t.opts.Snapshot == nil {
		return nil, ""
	}
	script, err := t.opts.Snapshot.script(env, shell)
	if err != nil {
		tool.Value(env, notedKey{}, func() *sync.Once { return new(sync.Once) }).Do(func() { note = "(Note: " + err.Error() + ".)" })
	}
	return script, note
}
