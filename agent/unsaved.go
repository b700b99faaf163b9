package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/parley-go/parley/wire"
)

// unsavedWait is how long a host may take to return the text of a file.
const unsavedWait = 10 * time.Second

// unsaved implements [tool.Env.Unsaved] with the control request unsaved_file, for a host that sent
// unsavedFiles with initialize. A host that fails has no such text.
func (s *server) unsaved(ctx context.Context, path string, save bool) (text string, ok bool) {
	if !s.unsavedFiles.Load() {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, unsavedWait)
	defer cancel()
	raw, err := json.Marshal(map[string]any{"subtype": "unsaved_file", "path": path, "save": save})
	if err != nil {
		return "", false
	}
	r, err := s.request(ctx, &wire.UnknownRequest{Name: "unsaved_file", Raw: raw})
	var answer struct{ Text *string }
	if err != nil || json.Unmarshal(r.Response, &answer) != nil || answer.Text == nil {
		return "", false
	}
	return *answer.Text, true
}
