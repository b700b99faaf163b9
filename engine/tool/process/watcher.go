package process

import (
	"os"
	"os/exec"
)

// A Watcher is a small process that outlives this one by a moment: if this one is
// killed and cannot stop anything itself, the watcher kills the processes that carry a
// mark. It exists on Linux only; elsewhere it does nothing.
type Watcher struct {
	cmd  *exec.Cmd
	pipe *os.File // closed when this process ends for any reason
}

// watching waits for the end of its input, and then kills processes that carry the
// mark, as long as it finds any.
const watching = `read -r line
for round in 1 2 3 4 5; do
	found=
	for file in $(grep -ls "$2" /proc/[0-9]*/environ); do
		if tr '\0' '\n' <"$file" 2>/dev/null | grep -qs "^$1=.*$2"; then
			pid=${file#/proc/}
			kill -9 "${pid%/environ}" 2>/dev/null
			found=1
		fi
	done
	[ "$found" ] || exit 0
done`

// Watch starts a watcher for a mark, with a shell. Call it only once there is a process
// that carries the mark. delay changes the command so that it is executed when its input ends,
// and returns a function to call after its start; if it cannot, the shell itself waits.
func Watch(shell, mark, path string, delay func(*exec.Cmd) (started func(), err error)) (*Watcher, error) {
	if !hasMarks {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command := func() *exec.Cmd {
		return &exec.Cmd{Path: shell, Args: []string{shell, "-c", watching, "watcher", MarkKey, mark}, Dir: "/", Env: []string{"PATH=" + path, "LC_ALL=C"}, Stdin: r, SysProcAttr: ownGroup()}
	}
	cmd := command()
	started, err := delay(cmd)
	if err == nil {
		err = cmd.Start()
		started()
	}
	if err != nil {
		cmd = command()
		err = cmd.Start()
	}
	r.Close()
	if err != nil {
		w.Close()
		return nil, err
	}
	return &Watcher{cmd: cmd, pipe: w}, nil
}

// Stop stops the watcher without killing anything else. The watcher may be nil.
func (w *Watcher) Stop() {
	if w == nil {
		return
	}
	w.cmd.Process.Kill()
	w.cmd.Wait()
	w.pipe.Close()
}
