package markdown

import "testing"

func TestUnfenced(t *testing.T) {
	for in, want := range map[string]string{
		"{}":                      "{}",
		" {} \n":                  "{}",
		"```json\n{}\n```":        "{}",
		"```\n{\n}\n```\n":        "{\n}",
		"```json\n{}":             "```json\n{}",
		"```{}```":                "```{}```",
		"Here:\n```json\n{}\n```": "Here:\n```json\n{}\n```",
	} {
		if got := Unfenced(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
