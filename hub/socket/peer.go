package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// errSession rejects a process that descends from a session.
var errSession = errors.New("a command that an agent runs may not use the hub: it could approve its own calls")

// errOrphan rejects a process that may descend from a session.
var errOrphan = errors.New("a process without a parent that is older than the hub may not use it: it could be a command that an agent runs. Use a terminal that was open before the hub started, or parley serve")

// marks are environment variables that every command of an agent has.
var marks = [][]byte{[]byte("CLAUDECODE="), []byte("PARLEY_CONN_ID="), []byte("PARLEY_EPOCH=")}

// checkMarks returns an error if an environment is that of a command that an agent runs.
func checkMarks(env []byte) error {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		for _, mark := range marks {
			if bytes.HasPrefix(v, mark) {
				return errSession
			}
		}
	}
	return nil
}

// A process is the system's information about a process.
type process struct {
	parent  int
	env     []byte    // its environment; each variable ends with a zero byte
	unread  error     // why env is unknown
	ours    bool      // it runs this program, or may run it
	started time.Time // set on systems where orphans do not keep a parent that shows where they come from
}

// checkChain returns an error if an agent runs, or may run, a process or one of its
// ancestors. If the system gives the orphans of this process to another one, since is when
// this process started: the oldest ancestor must be older.
func checkChain(pid int, look func(pid int) (process, error), since time.Time) error {
	for step := 0; pid > 1; step++ {
		if pid == os.Getpid() {
			return errSession
		}
		p, err := look(pid)
		if err == nil && step == 0 {
			err = p.unread
		}
		if err == nil && step > 1000 {
			err = errors.New("it has too many ancestors")
		}
		if err != nil {
			return fmt.Errorf("the peer cannot be checked: %w", err)
		}
		if err := checkMarks(p.env); err != nil {
			return err
		}
		if p.ours && step > 0 {
			return errSession // another agent of this program
		}
		if p.parent <= 1 && !since.IsZero() && !p.started.Before(since) {
			return errOrphan
		}
		pid = p.parent
	}
	return nil
}

// parseArguments parses the result of kern.procargs2 on macOS: the number of arguments, the
// path of the program, the arguments and the environment.
func parseArguments(raw []byte) (exe string, env []byte, err error) {
	if len(raw) < 4 {
		return "", nil, errors.New("the arguments of the process are cut off")
	}
	count, rest := int32(binary.NativeEndian.Uint32(raw)), raw[4:]
	path, rest, ok := bytes.Cut(rest, []byte{0})
	rest = bytes.TrimLeft(rest, "\x00") // up to the first argument
	for ; ok && count > 0; count-- {
		_, rest, ok = bytes.Cut(rest, []byte{0})
	}
	if !ok || count < 0 {
		return "", nil, errors.New("the arguments of the process are cut off")
	}
	return string(path), rest, nil
}
