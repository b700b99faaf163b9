package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/jsonschema-go/jsonschema"
)

var scriptBlock = regexp.MustCompile("(?ms)^```script\n(.*?)^```$")

// TestProtocolScripts plays the conversations of docs/protocol.md.
func TestProtocolScripts(t *testing.T) {
	data, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	found := scriptBlock.FindAllStringSubmatchIndex(text, -1)
	if len(found) < 10 {
		t.Fatalf("only %d scripts", len(found))
	}
	for _, m := range found {
		line := 1 + strings.Count(text[:m[0]], "\n")
		t.Run(fmt.Sprintf("line-%d", line), func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { playScript(t, "protocol.md", text[m[2]:m[3]], dir) })
		})
	}
}

var protocolSchema = sync.OnceValues(func() (*jsonschema.Resolved, error) {
	text, err := os.ReadFile("../docs/protocol.schema.json")
	if err != nil {
		return nil, err
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
})

// checkFrames validates the frames of an agent with the schema of the protocol.
func checkFrames(t *testing.T, frames []json.RawMessage) {
	t.Helper()
	schema, err := protocolSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		var v any
		if err := json.Unmarshal(f, &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%v\n%s", err, f)
		}
	}
}
