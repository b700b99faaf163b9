package transport

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrClosed is returned by Read after Close took over the output because nobody
// was reading it: what the peer still wrote was discarded, so the end of the
// data is not the end of what the peer said.
var ErrClosed = errors.New("transport: connection is closed")

// A NotFoundError reports that no agent was found to start. It matches
// [fs.ErrNotExist] and [exec.ErrNotFound].
type NotFoundError struct {
	// Tried holds every place that was looked at, in order, each with a reason in
	// parentheses when something was there that could not be used.
	Tried []string
}

// Error lists every place that was looked at and says how to name another.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	b.WriteString("transport: no agent executable found; looked at:")
	for _, t := range e.Tried {
		b.WriteString("\n  ")
		b.WriteString(t)
	}
	b.WriteString("\nInstall the claude or parley command, or name one: in the path option, or in the environment variable CLAUDE_BIN.")
	return b.String()
}

// Is reports whether target is one of the standard library's words for a file
// or a command that does not exist.
func (e *NotFoundError) Is(target error) bool {
	return target == fs.ErrNotExist || target == exec.ErrNotFound
}

// A StartError says that an executable was chosen but could not be started.
type StartError struct {
	Path string // the executable
	Dir  string // the working directory asked for; empty when none was
	Err  error  // the cause
}

// Error says what could not be started, why, and where it is known what to do.
func (e *StartError) Error() string {
	var b strings.Builder
	b.WriteString("transport: cannot start ")
	b.WriteString(e.Path)
	if e.Dir != "" {
		b.WriteString(" in ")
		b.WriteString(e.Dir)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if advice := e.advice(); advice != "" {
		b.WriteString(": ")
		b.WriteString(advice)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// A SpecError says that a dialer has no use for something that a [Spec] asks for.
type SpecError struct {
	Option string // the option that it comes from: "Path", "CleanEnv", …
	Reason string // why it has no effect, and what to do
}

// Error tells the option and the reason.
func (e *SpecError) Error() string { return "transport: " + e.Option + ": " + e.Reason }

// The causes that are found before anything is started. The system's own words
// for them would name the executable where the directory is missing.
var (
	errDirMissing  = errors.New("the working directory does not exist")
	errDirNotADir  = errors.New("the working directory is not a directory")
	errIsDirectory = errors.New("it is a directory")
	errBatchFile   = errors.New("it is a batch file, whose arguments cmd.exe would read as commands")
)

// advice says what to do about the cause, where that is known.
func (e *StartError) advice() string {
	switch {
	case errors.Is(e.Err, errDirMissing), errors.Is(e.Err, errDirNotADir):
		return "create it or choose another"
	case errors.Is(e.Err, errIsDirectory):
		return "name the executable inside it"
	case errors.Is(e.Err, errBatchFile):
		return "name the .exe it starts"
	}
	if advice := systemAdvice(e.Err); advice != "" {
		return advice
	}
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		if strings.EqualFold(filepath.Ext(e.Path), ".js") {
			return "it is a script for node: give node as the path and the script as the first argument"
		}
		return "make it executable (chmod +x) and see that its file system may run programs"
	case errors.Is(e.Err, fs.ErrNotExist):
		return "the file is there, so the interpreter in its first line or its dynamic loader is missing"
	}
	return ""
}
