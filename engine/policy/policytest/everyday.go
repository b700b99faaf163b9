package policytest

import (
	_ "embed"
	"strings"
)

//go:embed everyday.txt
var everyday string

// An EverydayCommand is a command that should need no permission.
type EverydayCommand struct {
	Command  string
	Volatile bool // the output changes from run to run
	Line     int  // in everyday.txt
}

// EverydayCommands returns the commands of everyday.txt.
func EverydayCommands() []EverydayCommand {
	var list []EverydayCommand
	for i, line := range strings.Split(everyday, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		command, volatile := strings.CutPrefix(line, "~ ")
		list = append(list, EverydayCommand{Command: command, Volatile: volatile, Line: i + 1})
	}
	return list
}
