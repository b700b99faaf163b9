package terminal

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
)

// A past is a line of the history file.
type past struct {
	Project string `json:"project"`
	Text    string `json:"display"`
}

const (
	maxHistory     = 1000    // prompts per project
	maxHistoryFile = 4 << 20 // bytes; at that size the older half is removed
	maxPastPrompt  = 16 << 10
)

// loadHistory reads the prompts that were sent from this directory.
func (s *screen) loadHistory() {
	if s.cfg.History == "" {
		return
	}
	f, err := os.Open(s.cfg.History)
	if err != nil {
		return
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var p past
		if json.Unmarshal(in.Bytes(), &p) == nil && p.Project == s.cfg.Cwd && p.Text != "" {
			s.ed.remember(cleanInput(p.Text))
		}
	}
	if n := len(s.ed.history) - maxHistory; n > 0 {
		s.ed.history = s.ed.history[n:]
	}
	s.ed.at = len(s.ed.history)
}

// remember adds a prompt to the history and, in a form that later sessions can use, to
// its file.
func (s *screen) remember(prompt, text string) {
	s.ed.remember(prompt)
	if s.cfg.History == "" || text == "" || len(text) > maxPastPrompt {
		return
	}
	if info, err := os.Stat(s.cfg.History); err == nil && info.Size() > maxHistoryFile {
		shortenHistory(s.cfg.History)
	}
	os.MkdirAll(filepath.Dir(s.cfg.History), 0o700)
	f, err := os.OpenFile(s.cfg.History, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.hint = "The history cannot be kept: " + err.Error()
		return
	}
	defer f.Close()
	raw, _ := json.Marshal(past{s.cfg.Cwd, text})
	f.Write(append(raw, '\n')) // one write, because other sessions append, too
}

// shortenHistory keeps the newer half of the file.
func shortenHistory(file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	data = data[len(data)/2:]
	for i, c := range data {
		if c == '\n' {
			data = data[i+1:]
			break
		}
	}
	tmp := file + ".new"
	if os.WriteFile(tmp, data, 0o600) == nil {
		os.Rename(tmp, file)
	}
}
