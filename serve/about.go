package serve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/parley-go/parley/hub"
)

// aboutAsk returns a one-line summary of a question.
func aboutAsk(a *hub.Ask) string {
	var req struct {
		Input struct {
			Command   string `json:"command"`
			FilePath  string `json:"file_path"`
			Path      string `json:"path"`
			URL       string `json:"url"`
			Questions []struct {
				Question string `json:"question"`
			} `json:"questions"`
		} `json:"input"`
		Message string `json:"message"`
	}
	json.Unmarshal(a.Request, &req)
	in := req.Input
	detail := cmp.Or(in.Command, in.FilePath, in.Path, in.URL, req.Message)
	if len(a.Paths) > 0 && in.Command == "" {
		detail = strings.Join(a.Paths, ", ")
	}
	if len(in.Questions) > 0 {
		detail = in.Questions[0].Question
	}
	return clip(visible(strings.TrimSpace(cmp.Or(a.Tool, string(a.Kind))+" "+detail)), 300)
}

// visible escapes characters that a screen does not show as they are: control
// characters, characters without width, and those that change the direction of text.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case unicode.IsPrint(r) && !unicode.Is(unicode.Variation_Selector, r) && !strings.ContainsRune("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
