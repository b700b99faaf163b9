package house

import (
	"regexp"
	"strings"
	"testing"
)

var (
	variable = regexp.MustCompile(`"((?:PARLEY|CLAUDE|ANTHROPIC|MCP|OPENAI|OTEL|DISABLE|ENABLE|BASH|CLOUD_ML|MAX|DEBUG|IS)_[A-Z0-9_]*[A-Z0-9])"`)
	// readers are the packages of the command that read the environment.
	readers = regexp.MustCompile(`^([a-z]+\.go|(agent|cmd/parley|engine|internal/otlp|terminal|transport)/.*\.go)$`)
	// notForUsers are names that no user sets: they are removed from the environment of commands or
	// of a tested program, or are the beginning of a name.
	notForUsers = map[string]bool{
		"ANTHROPIC_UNIX_SOCKET": true, "CLAUDE_CODE_OAUTH_TOKEN": true, "CLAUDE_CODE_OAUTH": true, "CLAUDE_CODE_USE_FOUNDRY": true,
		"PARLEY_API_KEY": true, "BASH_ENV": true, "MAX_TOKENS": true,
	}
)

// TestEnvironmentPage checks that docs/environment.md has every variable that the code reads, and no other.
func TestEnvironmentPage(t *testing.T) {
	page := string(read(t, "docs/environment.md"))
	var code strings.Builder
	for _, name := range files(t) {
		if !readers.MatchString(name) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text := string(read(t, name))
		code.WriteString(text)
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if !notForUsers[m[1]] && !strings.Contains(page, "`"+m[1]+"`") {
				t.Errorf("%s uses %s, which docs/environment.md does not have", name, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile("`((?:PARLEY|CLAUDE|MCP|DISABLE|ENABLE|BASH|MAX)_[A-Z0-9_]+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(code.String(), m[1]) {
			t.Errorf("docs/environment.md has %s, which no code uses", m[1])
		}
	}
}
