// Package markdown knows the little of Markdown that answers of a model are wrapped in.
package markdown

import "strings"

// Unfenced takes a text out of the code block that is all of it. Any other text it
// returns as it is, without the white space around it.
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
