package socket

import (
	"bytes"
	"errors"
)

// errSession is the answer to a process that descends from a session.
var errSession = errors.New("a command that an agent runs may not use the hub: it could approve its own calls")

// marks are variables in the environment of commands that an agent runs.
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
