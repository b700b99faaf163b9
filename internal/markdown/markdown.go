// Package markdown removes the Markdown in which a model wraps an answer.
package markdown

import "strings"

// Unfenced returns the content of a code block that is the whole text. It returns
// any other text unchanged, without the surrounding white space.
func Unfenced(text string) string {
	text = strings.TrimSpace(text)
	body, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	_, body, ok = strings.Cut(body, "\n")
	if !ok || !strings.HasSuffix(body, "```") {
		return text
	}
	return strings.TrimSpace(strings.TrimSuffix(body, "```"))
}
