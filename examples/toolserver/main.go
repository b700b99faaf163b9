// Command toolserver is an MCP server of typed Go functions, for any agent to start:
//
//	go build -o toolserver ./examples/toolserver
//	parley -p "How many words are in: To be or not to be?" --allowedTools mcp__text__count \
//		--mcp-config '{"mcpServers":{"text":{"command":"./toolserver"}}}'
//
// Put "parley fake-api --agent --script examples/toolserver/model.script --" before the
// second command to run it without a key.
package main

import (
	"context"
	"errors"
	"log"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
)

type countInput struct {
	Text string `json:"text" jsonschema:"the text to count in"`
}

type countOutput struct {
	Words int `json:"words"`
	Lines int `json:"lines"`
}

func count(_ context.Context, in countInput) (countOutput, error) {
	return countOutput{Words: len(strings.Fields(in.Text)), Lines: strings.Count(in.Text, "\n")}, nil
}

type replaceInput struct {
	Text string `json:"text"`
	Old  string `json:"old" jsonschema:"what is replaced; not empty"`
	New  string `json:"new,omitempty"`
}

func replace(_ context.Context, in replaceInput) (string, error) {
	if in.Old == "" {
		return "", errors.New("there is nothing to replace: old is empty") // the model receives this
	}
	return strings.ReplaceAll(in.Text, in.Old, in.New), nil
}

func main() {
	counts := parley.NewTool("count", "Counts the words and lines of a text.", count)
	counts.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	replaces := parley.NewTool("replace", "Replaces one part of a text by another.", replace)
	if err := parley.ServeTools(context.Background(), counts, replaces); err != nil {
		log.Fatal(err)
	}
}
