package files

import (
	"context"
	"encoding/json"

	"github.com/parley-go/parley/engine/tool"
)

// A Change is a tool that changes the one file that its input names. Edit, Write and NotebookEdit embed it.
type Change struct {
	spec   *tool.Spec
	member string
	run    func(ctx context.Context, call *tool.Call, check bool) (*tool.Result, error)
}

// NewChange returns a tool whose input has the file in a member. run changes the file, or only checks that it can.
func NewChange(spec *tool.Spec, member string, run func(ctx context.Context, call *tool.Call, check bool) (*tool.Result, error)) *Change {
	return &Change{spec, member, run}
}

// Spec implements [tool.Tool].
func (c *Change) Spec() *tool.Spec { return c.spec }

// Absolute implements [tool.PathTool].
func (c *Change) Absolute(env *tool.Env, input json.RawMessage) (json.RawMessage, error) {
	return Absolute(env, input, c.member, Named)
}

// Access returns a write to the file.
func (c *Change) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	return Access(env, input, tool.Write, func(in *map[string]json.RawMessage) (path string) {
		json.Unmarshal((*in)[c.member], &path)
		return path
	})
}

// Check implements [tool.Checker].
func (c *Change) Check(ctx context.Context, call *tool.Call) error {
	_, err := c.run(ctx, call, true)
	return misplaced(err)
}

// Run changes the file.
func (c *Change) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	r, err := c.run(ctx, call, false)
	return r, misplaced(err)
}
