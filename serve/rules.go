package serve

import (
	"context"
	"encoding/json"
)

// A RulesQuery asks for the permission rules of a session, and optionally for their
// decision about a call.
type RulesQuery struct {
	ID    string          `json:"-" path:"id"`
	Tool  string          `json:"tool,omitempty"` // empty: only the rules
	Input json.RawMessage `json:"input,omitempty"`
	Mode  string          `json:"mode,omitempty"` // that of the settings if omitted
}

// Rules are the permission rules of the settings that apply in a directory.
type Rules struct {
	Mode        string `json:"mode"`
	Rules       []Rule `json:"rules"`
	Explanation string `json:"explanation,omitempty"` // the decision about the call, and the reason
}

// A Rule is one permission rule.
type Rule struct {
	Behavior string `json:"behavior"` // allow, ask or deny
	Rule     string `json:"rule"`
	Source   string `json:"source"` // the file and line
}

func rulesOf(c *call, ctx context.Context, in *RulesQuery) (Rules, error) {
	info, _, err := c.session().Info(ctx, c.Actor)
	if err != nil {
		return Rules{}, err
	}
	if c.s.cfg.Rules == nil {
		return Rules{}, badRequest("this server does not know the rules of its agents")
	}
	out, err := c.s.cfg.Rules(info.State.Cwd, in)
	if err != nil {
		return Rules{}, badRequest("%v", err)
	}
	return out, nil
}
