package serve

import (
	"context"
	"encoding/json"

	"github.com/parley-go/parley/console"
)

// RenderRequest holds texts to render for a page.
type RenderRequest struct {
	Markdown []string `json:"markdown,omitempty"`
	Diffs    []string `json:"diffs,omitempty"` // unified
}

// Rendered holds the rendered texts, in the same order.
type Rendered struct {
	Markdown []json.RawMessage `json:"markdown"` // lists of nodes, with text or a tag and nodes
	Diffs    [][]console.Line  `json:"diffs"`
}

// render renders Markdown and diffs. It changes nothing, and a page calls it all the
// time, so it is not in the audit log.
func render(_ *call, _ context.Context, in *RenderRequest) (out Rendered, err error) {
	for _, text := range in.Markdown {
		nodes, err := json.Marshal(console.Markdown(text))
		if err != nil {
			return out, err
		}
		out.Markdown = append(out.Markdown, nodes)
	}
	for _, text := range in.Diffs {
		out.Diffs = append(out.Diffs, console.Diff(text))
	}
	return out, nil
}

// reading marks a route that changes nothing.
func reading(r route) route {
	r.reads = true
	return r
}
