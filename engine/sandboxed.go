package engine

import (
	"slices"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// unasked reports whether a command need not be asked about: it runs inside the
// sandbox, and the settings say that this is enough.
func (c *Conversation) unasked(access []tool.Access) bool {
	return c.env.Sandbox.Settings().AutoAllowBash && c.env.Sandbox.Complete() && len(access) > 0 &&
		!slices.ContainsFunc(access, func(a tool.Access) bool { return a.Sandbox != tool.Inside })
}

// walled reports whether the read wall holds for the commands of a call. It tries
// the wall if nobody did, so calls without commands do not ask it.
func (c *Conversation) walled(access []tool.Access) bool {
	return slices.ContainsFunc(access, func(a tool.Access) bool { return a.Kind == tool.Execute }) && c.env.Wall.Ready() == nil
}

// leaving is what a decision becomes about a command that the model wants to run
// outside the sandbox: that is asked about, whatever rule or mode allows the command.
func leaving(access []tool.Access, d policy.Decision) policy.Decision {
	if d.Behavior == wire.BehaviorAllow && slices.ContainsFunc(access, func(a tool.Access) bool { return a.Sandbox == tool.Outside }) {
		d.Behavior, d.Rule, d.ReasonType, d.Reason = wire.BehaviorAsk, nil, "sandboxOverride", "the command is to run outside the sandbox"
	}
	return d
}
