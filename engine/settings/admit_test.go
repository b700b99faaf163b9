package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Settings about MCP servers exclude the servers that they name, or that they do not
// name.
func TestServersOfProjectAreAdmitted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".mcp.json"), []byte(`{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, managed, want string }{
		{"", "", "a b"},
		{`{"disabledMcpjsonServers": ["a"]}`, "", "b"},
		{`{"allowedMcpServers": [{"serverName": "a"}]}`, "", "a"},
		{`{"allowedMcpServers": []}`, "", ""},
		{`{"deniedMcpServers": [{"serverName": "b"}]}`, "", "a"},
		{"", `{"allowManagedMcpServersOnly": true}`, ""},
		{`{"allowManagedMcpServersOnly": true}`, "", "a b"}, // only an administrator can set this
	} {
		s, err := Load(Options{Dir: dir, Sources: Sources{Project: true}, TrustProject: "all", Flag: c.flag, Restrict: c.managed})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, srv := range s.Servers() {
			if s.Admits(srv.Name, json.RawMessage(srv.Config)) {
				names = append(names, srv.Name)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.flag, c.managed, got, c.want)
		}
	}
}
