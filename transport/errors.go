package transport

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrClosed is returned by Read after Close took over the output because nobody was
// reading it. Close discarded output, so the data is incomplete.
var ErrClosed = errors.New("transport: connection is closed")

// A NotFoundError means that no agent was found. It matches [fs.ErrNotExist] and
// [exec.ErrNotFound].
type NotFoundError struct {
	// Tried holds every place that was searched, in order, each with a reason in
	// parentheses if something was there that could not be used.
	Tried []string
}

// Error lists every place that was searched and explains how to name another one.
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

// Is reports whether target is one of the standard library's errors for a file or a
// command that does not exist.
func (e *NotFoundError) Is(target error) bool {
	return target == fs.ErrNotExist || target == exec.ErrNotFound
}

// A StartError means that an executable was chosen but could not be started.
type StartError struct {
	Path string // the executable
	Dir  string // the requested working directory; empty if none
	Err  error  // the cause
}

// Error describes what could not be started, why, and a remedy if one is known.
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

// A SpecError means that a dialer does not support something in a [Spec].
type SpecError struct {
	Option string // the option that set it: "Path", "CleanEnv", …
	Reason string // why it has no effect, and what to do
}

// Error returns the option and the reason.
func (e *SpecError) Error() string { return "transport: " + e.Option + ": " + e.Reason }

// The causes that are found before anything is started. The system's own errors for
// them would name the executable when the directory is missing.
var (
	errDirMissing  = errors.New("the working directory does not exist")
	errDirNotADir  = errors.New("the working directory is not a directory")
	errIsDirectory = errors.New("it is a directory")
	errBatchFile   = errors.New("it is a batch file, whose arguments cmd.exe would read as commands")
)

// advice returns a remedy for the cause, if one is known.
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
