package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// An Event is a line of the audit log: somebody changed something, or was rejected.
type Event struct {
	Time    time.Time `json:"time"`
	By      string    `json:"by,omitempty"`    // the name of the token
	Token   string    `json:"token,omitempty"` // its id
	From    string    `json:"from"`
	Action  string    `json:"action"` // the route, such as "POST /v1/sessions/{id}/prompts"
	Session string    `json:"session,omitempty"`
	Status  int       `json:"status"`
	Reason  string    `json:"reason,omitempty"` // why it was rejected or failed
}

// auditLimit is the size at which the audit log is rotated. One old file is kept.
const auditLimit = 10 << 20

// An auditLog is a file of events, one per line.
type auditLog struct {
	mu   sync.Mutex
	path string // empty: it is not stored
	file *os.File
	size int64
}

func openAudit(path string) (*auditLog, error) {
	a := &auditLog{path: path}
	if path == "" {
		return a, nil
	}
	return a, a.open()
}

func (a *auditLog) open() error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("serve: the audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("serve: the audit log: %w", err)
	}
	a.file, a.size = f, info.Size()
	return nil
}

// add appends an event.
func (a *auditLog) add(e Event) error {
	e.Time = time.Now().UTC().Truncate(time.Millisecond)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	if a.size > auditLimit {
		a.file.Close()
		a.file = nil
		if err := os.Rename(a.path, a.path+".1"); err != nil {
			return err
		}
		if err := a.open(); err != nil {
			return err
		}
	}
	n, err := a.file.Write(append(line, '\n'))
	a.size += int64(n)
	return err
}

func (a *auditLog) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}
