//go:build darwin || (linux && (amd64 || arm64))

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// maxTime is the limit of CPU time of a process behind a wall, in seconds.
const maxTime = 600

// wallGuarantees are the guarantees of every wall.
var wallGuarantees = []string{
	"no change to any file, its mode, times or attributes",
	"no network and no sockets",
	"only the working directories, the system and installed tools can be read; credentials, files of deny rules and closed files in /etc cannot",
	"no signals to other processes, no tracing, no access to their memory and environment",
}

// probePrefix starts the names of the directories of attack.
const probePrefix = "parley-wall-"

// removeOldProbes removes the directories of attacks that were killed before a time.
func removeOldProbes(before time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), probePrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && info.ModTime().Before(before) {
			os.RemoveAll(dir)
		}
	}
}

// attack runs a shell behind the wall that tries to escape, and checks its effects. On Linux, its
// starter tries what a shell needs other programs for: see [starter.change].
func (w *Wall) attack() error {
	removeOldProbes(time.Now().Add(-time.Hour))
	dir, err := os.MkdirTemp("", probePrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, other := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	for _, d := range []string{root, other} {
		if err := errors.Join(os.Mkdir(d, 0o700), os.WriteFile(filepath.Join(d, "file"), []byte(filepath.Base(d)), 0o600)); err != nil {
			return err
		}
	}
	before, err := os.Stat(filepath.Join(root, "file"))
	if err != nil {
		return err
	}
	const script = `read -r a <root/file; echo "read $a"; read -r b <other/file; echo "read $b"
echo x >root/new; echo x >>root/file; ` + changes + `echo x >/dev/null
exec 9<>/dev/tcp/127.0.0.1/9; kill -0 "$PPID" && echo "kill"; read -r c <"/proc/$PPID/environ" && echo "environ"; exit 42`
	cmd := exec.Command("/bin/bash", "-c", script)
	if _, err := os.Stat(cmd.Path); err != nil {
		if cmd.Path, err = exec.LookPath("bash"); err != nil {
			return err
		}
	}
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	var out bytes.Buffer
	cmd.Stdout = &out
	c, err := w.confine(cmd, &View{Roots: []string{root}, attack: true})
	if err != nil {
		return err
	}
	err = cmd.Start()
	c.Started(err)
	if err == nil {
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		err = cmd.Wait()
		kill.Stop()
	}
	if err := c.Err(); err != nil {
		return err
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 42 {
		return fmt.Errorf("a command behind it does not run: %w", err)
	}
	after, err := os.Stat(filepath.Join(root, "file"))
	names, err2 := os.ReadDir(root)
	switch {
	case err != nil || err2 != nil:
		return errors.Join(err, err2)
	case len(names) != 1 || after.Size() != before.Size() || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()):
		return errors.New("a command behind it changed a file")
	case out.String() != "read root\nread \n":
		return fmt.Errorf("a command behind it printed %q", out.String())
	case w.reports() && len(c.Refused()) != 2:
		return fmt.Errorf("what it refuses is not reported: %v", c.Refused())
	}
	return nil
}
