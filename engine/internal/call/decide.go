package call

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Names of the tool that starts subagents: the model and hooks use Agent, hosts use Task;
// calls may use both.
const (
	AgentName     = "Agent"
	AgentHostName = "Task"
)

// IsAgentName reports whether a name is that of the tool that starts subagents.
func IsAgentName(name string) bool { return name == AgentName || name == AgentHostName }

// interactive reports whether a tool asks the user itself. Its calls always go to the host,
// and no rule or mode answers instead.
func interactive(name string) bool { return name == "AskUserQuestion" || name == "ExitPlanMode" }

// errOver means that the conversation is over.
var errOver = errors.New("the conversation is over")

// Decide decides a call by the current rules and mode of the topmost conversation, narrowed by
// each agent down to this one. It runs in the goroutine of the call, so a slow file system
// delays nothing else. It returns an error if the conversation is over.
func (r *Runner) Decide(tl tool.Tool, input json.RawMessage, access []tool.Access, resolved map[string]tool.Target) (d policy.Decision, mode wire.PermissionMode, err error) {
	select {
	case <-r.Top.Over:
		return d, mode, errOver
	default:
	}
	top := r.Top.View()
	mode = top.modeOf(tl)
	if top.Self != nil {
		mode = Narrowest(mode, top.Self.Mode)
	}
	if r.Agent != nil {
		for _, own := range r.Agent.Modes {
			mode = Narrowest(mode, own)
		}
	}
	req := top.Request(r.Env, tl, input, access, resolved)
	// A conversation in a worktree, or outside of it while the topmost one is inside, keeps
	// its own directories.
	if own := r.View().Env; own.Outer != nil || top.Env.Outer != nil {
		req.Roots, req.Bound = own.Judged()
	}
	req.Sandboxed, req.ReadWall = r.sandboxed(access), r.Walled(access)
	d = askOutsideSandbox(access, r.View().Rules().Decide(req))
	if a, ok := tl.(AgentTool); ok {
		if name := a.AgentType(input); name != "" {
			d = aboutAgent(top.Policy, name, mode, d)
		}
	}
	if r.Agent != nil && d.Behavior == wire.BehaviorDeny && r.Agent.ReadOnly && d.ReasonType == "mode" {
		d.Reason = fmt.Sprintf("the agent %s only looks: it changes nothing", r.Agent.Name)
	}
	return d, mode, nil
}

// sandboxed reports whether a command needs no permission because it runs inside the sandbox
// and the settings say that this is enough.
func (r *Runner) sandboxed(access []tool.Access) bool {
	return r.Env.Sandbox.Settings().AutoAllowBash && r.Env.Sandbox.Complete() && len(access) > 0 &&
		!slices.ContainsFunc(access, func(a tool.Access) bool { return a.Sandbox != tool.Inside })
}

// Walled reports whether the read wall protects the commands of a call. Ready probes the wall
// on its first use, so it is not called for calls without commands.
func (r *Runner) Walled(access []tool.Access) bool {
	return slices.ContainsFunc(access, func(a tool.Access) bool { return a.Kind == tool.Execute }) && r.Env.Wall.Ready() == nil
}

// askOutsideSandbox changes an allow decision to ask for a command that the model requests to run
// outside the sandbox, whatever rule or mode allows it.
func askOutsideSandbox(access []tool.Access, d policy.Decision) policy.Decision {
	if d.Behavior == wire.BehaviorAllow && slices.ContainsFunc(access, func(a tool.Access) bool { return a.Sandbox == tool.Outside }) {
		d.Behavior, d.Rule, d.ReasonType, d.Reason = wire.BehaviorAsk, nil, "sandboxOverride", "the command would run outside the sandbox"
	}
	return d
}

// aboutAgent applies rules about an agent, such as Agent(Explore).
func aboutAgent(p *policy.Policy, name string, mode wire.PermissionMode, d policy.Decision) policy.Decision {
	for _, rule := range p.Rules() {
		r := &rule
		if !IsAgentName(r.Tool) || r.Content == "" || !r.MatchesName(name) {
			continue
		}
		switch {
		case r.Behavior == wire.BehaviorDeny:
			return policy.Decision{Behavior: wire.BehaviorDeny, Reason: "denied by the rule " + r.String() + " of " + r.Source.String(), ReasonType: "rule", Rule: r}
		case r.Behavior == wire.BehaviorAsk && d.Behavior == wire.BehaviorAllow:
			d = policy.Decision{Behavior: wire.BehaviorAsk, Reason: "the rule " + r.String() + " of " + r.Source.String() + " asks", ReasonType: "rule", Rule: r}
			if mode == wire.ModeDontAsk {
				d.Behavior, d.ReasonType, d.Reason = wire.BehaviorDeny, "mode", "this mode asks nobody, and "+d.Reason
			}
		}
	}
	return d
}

// decide applies the rules to the current input. If it returns false, s.out holds the reason
// why the call does not run.
func (s *run) decide() bool {
	access, err := s.Tool.Access(s.Env, s.input)
	if err != nil {
		s.out.Result = tool.Failed(err)
		return false
	}
	s.resolved = files.Targets(s.Env, access)
	if s.decision, s.mode, err = s.Decide(s.Tool, s.input, access, s.resolved); err != nil {
		s.out = Rejected(s.Call, s.out.Input, StoppedBefore)
		return false
	}
	return true
}

// hasPlan reports whether there is a plan to approve, which is only so in plan mode. It is
// checked before the host is asked, because the answer may leave plan mode at once.
func (s *run) hasPlan() bool {
	if s.spec.Name != "ExitPlanMode" || s.mode == wire.ModePlan {
		return true
	}
	s.out.Result = tool.Failed(tool.Misuse("The mode is not plan mode, so there is no plan to approve. If it was approved, carry it out; to plan first, call EnterPlanMode."))
	return false
}

// decideByRules is the stage that applies the rules and the mode.
func (s *run) decideByRules() bool {
	if s.decide() && s.hasPlan() {
		return false
	}
	if !s.out.Stopped {
		s.recordDecision(s.decision, "schema", false)
	}
	return true
}

// applyHooks combines the decision of the rules with that of PreToolUse hooks, and with a
// mode in which nobody is asked.
func (s *run) applyHooks() bool {
	d := &s.decision
	if interactive(s.spec.Name) && d.Behavior == wire.BehaviorAllow {
		d.Behavior, d.Reason, d.ReasonType, d.Rule = wire.BehaviorAsk, "", "", nil
	}
	if d.Behavior == wire.BehaviorDeny {
		return false
	}
	if s.hooks.Behavior == wire.BehaviorAsk {
		d.Behavior, d.ReasonType, d.Reason = wire.BehaviorAsk, "hook", s.hooks.Reason
	} else if s.hooks.Behavior == wire.BehaviorAllow && d.Rule == nil && d.DecidedBy != policy.ByRemoval && !interactive(s.spec.Name) {
		// An ask rule is the user's own decision: a hook cannot answer it. Nor may it remove the home.
		d.Behavior, d.ReasonType = wire.BehaviorAllow, "hook"
		if s.mode != wire.ModePlan { // plan mode allows no changes, whatever a hook allows
			d.DecidedBy = policy.ByHook
		}
	}
	if d.Behavior == wire.BehaviorAsk && s.mode == wire.ModeDontAsk {
		d.Behavior, d.ReasonType, d.Reason = wire.BehaviorDeny, "mode", "this mode asks nobody, and no rule allows the call"
	}
	return false
}

// applyDecision allows or denies the call, unless the host must be asked.
func (s *run) applyDecision() bool {
	switch d := s.decision; d.Behavior {
	case wire.BehaviorAllow:
		source, reason := "config", d.ReasonType
		if reason == "hook" {
			source, s.by = "hook", "hook"
		}
		if (s.StartsAgent() || s.spec.Name == "Skill" || len(d.Access()) == 0) && s.mode != wire.ModeBypassPermissions && d.Rule == nil && reason == "mode" {
			reason = "" // the calls of a subagent are decided one by one; a call without access is not decided
		}
		if s.spec.Name == "Bash" && s.mode == wire.ModeAcceptEdits && reason == "mode" {
			reason = "subcommandResults" // as the official command decides commands
		}
		if reason == "rule" && d.Rule != nil && d.Rule.Source.Layer == policy.LayerSession {
			source = string(wire.UserTemporary) // a person added the rule
		}
		s.place = d.DecidedBy.Place()
		return s.allow(source, reason)
	case wire.BehaviorDeny:
		if s.hooks.Behavior != wire.BehaviorAllow {
			return s.deny()
		}
		// As in the official command, only the result reports this denial, as if by a rule.
		s.denyQuietly()
		s.out.Meta.NonExecutionKind = "permission-rule"
		return s.refuseCall()
	}
	return false
}

// askJudge is the stage of mode auto: a model judges the call, unless a person must decide. A
// command that it allows runs in the workspace sandbox.
func (s *run) askJudge() bool {
	if s.allowed || s.mode != wire.ModeAuto || !s.judgeable() {
		return false
	}
	s.judged = s.Judge(s.ctx, s.spec, s.input)
	d := &s.decision
	d.ReasonType, d.Reason = "classifier", s.judged.Reason
	if s.judged.Behavior != wire.BehaviorAllow || s.ctx.Err() != nil {
		return false
	}
	d.Behavior, d.DecidedBy, s.by = wire.BehaviorAllow, policy.ByJudge, "judge"
	s.place = d.DecidedBy.Place()
	return s.allow("config", "classifier")
}

// judgeable reports whether a model may judge the call: no rule, hook or check requires a
// person, it touches no file outside of the working directories, and its commands can be
// confined.
func (s *run) judgeable() bool {
	d := &s.decision
	if interactive(s.spec.Name) || d.Rule != nil || d.DecidedBy != "" || slices.Contains([]string{"hook", "sandboxOverride", "workingDir"}, d.ReasonType) {
		return false
	}
	access := d.Access()
	commands := false
	for _, a := range access {
		if a.Unwalled || a.Sandbox == tool.Outside {
			return false
		}
		commands = commands || a.Kind == tool.Execute
	}
	if !commands {
		return d.Path == ""
	}
	inside := s.Env.Sandbox.Complete() && !slices.ContainsFunc(access, func(a tool.Access) bool { return a.Sandbox != tool.Inside })
	return inside || s.Walled(access)
}

// allow lets the call run.
func (s *run) allow(source, reason string) bool {
	s.allowed, s.out.Meta = true, acceptedMeta(s.Call, source, reason)
	s.recordDecision(s.decision, s.by, true)
	return false
}

// refuseCall ends a call that is not allowed. s.out holds the reason.
func (s *run) refuseCall() bool {
	s.recordDecision(s.decision, s.by, false)
	if s.judged != nil && s.out.Denied && !s.out.Interrupt && s.ctx.Err() == nil {
		s.callDeniedHooks()
	}
	return true
}

// failCall ends a call because the permission request failed.
func (s *run) failCall(err error) bool {
	s.out.Result = tool.Failed(err)
	return s.refuseCall()
}

// deny ends a call that a rule or the mode denies, and sends a separate message about it to
// the host.
func (s *run) deny() bool {
	reason := s.denyQuietly()
	m := &wire.PermissionDenied{ToolName: s.Name, ToolUseID: s.ID, DecisionReasonType: s.reasonType(), DecisionReason: reason, Message: reason}
	if m.DecisionReasonType == "" || m.DecisionReasonType == "mode" || s.spec.Name == "Bash" && s.decision.Rule != nil || m.DecisionReasonType == "subcommandResults" {
		m.DecisionReason = "" // the message contains the reason, as with the official command
	}
	s.out.Before = append(s.out.Before, m)
	return s.refuseCall()
}

// reasonType returns the type of the reason for a denial, as the official command names it.
func (s *run) reasonType() string {
	if r := s.decision.Rule; s.spec.Name == "Bash" && r != nil && r.Content != "" {
		return "subcommandResults"
	}
	return s.decision.ReasonType
}

// denyQuietly sets the outcome of a denied call. It returns the reason.
func (s *run) denyQuietly() string {
	reason := cmp.Or(s.decision.Reason, "the call is not allowed")
	s.out.Denied = true
	s.out.Result = tool.Failed(errors.New(reason))
	kind, source, rule := "user-rejected", "config", s.decision.Rule
	if s.decision.ReasonType == "mode" || rule != nil {
		kind = "permission-rule"
	}
	if rule != nil && rule.Source.Layer == policy.LayerSession && s.reasonType() == "rule" {
		source = string(wire.UserReject) // a person added the rule
	}
	s.out.Meta = s.rejected(kind, source, s.reasonType())
	return reason
}

// askHost is the stage that asks the host and PermissionRequest hooks.
func (s *run) askHost() bool {
	if s.allowed {
		return false
	}
	res, by, err := s.requestPermission(s.question())
	s.by = by
	if res == nil && err == nil {
		d := &s.decision
		d.Reason = cmp.Or(d.Reason, fmt.Sprintf("%s needs approval, and nobody can be asked", s.spec.Name))
		if interactive(s.spec.Name) {
			d.Reason = "Nobody can answer. Decide yourself, and state your decision."
		}
		if s.NoPrompts {
			d.ReasonType = "asyncAgent"
		}
		return s.deny()
	}
	if s.ctx.Err() != nil { // the turn ended before an answer
		s.out = Rejected(s.Call, s.out.Input, StoppedBefore)
		s.out.Denied = true
		return s.refuseCall()
	}
	if err != nil || res.Behavior != wire.BehaviorAllow {
		return s.applyDenial(res, err)
	}
	return s.applyPermission(res)
}

// applyDenial ends a call that was denied, or whose permission request got no answer.
func (s *run) applyDenial(res *wire.PermissionResult, err error) bool {
	s.out.Denied, s.out.Meta = true, s.rejected("permission-rule", "config", "other")
	switch {
	case err != nil:
		return s.failCall(fmt.Errorf("Tool permission request failed: Error: %v", err))
	case res.Behavior != wire.BehaviorDeny:
		return s.failCall(fmt.Errorf("The permission callback gave no valid answer: it must be allow or deny, and was %q.", res.Behavior))
	case res.Interrupt:
		s.out.Interrupt = true
		rej := Rejected(s.Call, s.out.Input, stoppedDenied)
		s.out.Result, s.out.Meta, s.out.Stopped = rej.Result, rej.Meta, true
		return s.refuseCall()
	case res.Message == "" && s.by != "hook":
		return s.failCall(errors.New("The permission callback gave no valid answer: it denied the call without a message."))
	}
	source := classified(res, wire.UserReject)
	reason := ""
	if s.by == "hook" {
		source = "hook"
		if !s.View().Host.CanAsk() { // nobody else decides, so the denial is reported like that of a rule
			reason = "hook"
			s.out.Before = append(s.out.Before, &wire.PermissionDenied{ToolName: s.Name, ToolUseID: s.ID, DecisionReasonType: reason, DecisionReason: res.Message, Message: res.Message})
		}
	}
	s.out.Meta = s.rejected("permission-rule", source, reason)
	return s.failCall(errors.New(res.Message))
}

// applyPermission allows a call as answered, unless the answer changes the input to one that
// the rules deny: a person must not be tricked past a rule.
func (s *run) applyPermission(res *wire.PermissionResult) bool {
	if in := bytes.TrimSpace(res.UpdatedInput); len(in) > 0 && in[0] != '{' && string(in) != "null" {
		s.out.Denied, s.out.Meta = true, s.rejected("permission-rule", "config", "other")
		return s.failCall(errors.New("The permission callback gave no valid answer: updatedInput must be an object."))
	}
	var invalid error
	changed, decided := !slices.Contains([]string{"", "null", "{}"}, string(bytes.Join(bytes.Fields(res.UpdatedInput), nil))), true // an empty input changes nothing
	if changed {
		if invalid = s.prepare(res.UpdatedInput); invalid == nil {
			decided = s.decide()
		}
	}
	s.applyUpdates(res.UpdatedPermissions) // only now: a new mode is for later calls
	switch {
	case invalid != nil:
		s.out.Meta = s.rejected("", "permission_updated_input_invalid", "")
		s.out.Result = tool.Failed(tool.Misuse("InputValidationError: permission handler updatedInput failed schema for %s", s.spec.Name))
		s.out.Result.Content = wire.Text(fmt.Sprintf("<tool_use_error>The answer to the permission request changed the input of %s to one that its schema does not allow: %s\nThe input from the model was valid; the host must correct its answer.</tool_use_error>",
			s.spec.Name, strings.TrimPrefix(invalid.Error(), "InputValidationError: ")))
		return s.refuseCall()
	case !decided:
		return s.refuseCall()
	case changed && s.decision.Behavior == wire.BehaviorDeny:
		return s.deny()
	}
	if s.by == "hook" {
		s.decision.DecidedBy = policy.ByHook
		return s.allow("hook", "")
	}
	s.decision.DecidedBy = policy.ByAnswer
	return s.allow(classified(res, wire.UserTemporary), "")
}

// classified returns the scope of a decision, or otherwise if the host gave no scope that is known.
func classified(res *wire.PermissionResult, otherwise wire.DecisionClassification) string {
	switch c := res.DecisionClassification; c {
	case wire.UserTemporary, wire.UserPermanent, wire.UserReject:
		return string(c)
	}
	return string(otherwise)
}

// rejected describes a call that is not allowed.
func (s *run) rejected(kind, source, reason string) *wire.ToolResultMeta {
	return &wire.ToolResultMeta{ID: s.ID, NonExecutionKind: kind,
		PermissionDecision: &wire.PermissionDecision{Decision: "reject", Source: source, ReasonType: reason}}
}

// applyUpdates applies the permission updates of an answer, for this conversation and for
// later ones.
func (s *run) applyUpdates(updates []*wire.PermissionUpdate) {
	if i := slices.IndexFunc(updates, func(u *wire.PermissionUpdate) bool { return u != nil && !wellFormed(u) }); i >= 0 {
		text, _ := json.Marshal(updates[i])
		s.Log.Warn("the answer to a permission request has a malformed update, so none of its updates applies", "tool", s.spec.Name, "update", string(text))
		return
	}
	for _, u := range updates {
		if u == nil {
			continue
		}
		var path string
		var err error
		if s.Top.Keep != nil {
			path, err = s.Top.Keep(u)
		}
		if errors.Is(err, settings.ErrNotRead) && permits(u) {
			s.out.Before = append(s.out.Before, &wire.Informational{Content: fmt.Sprintf("The permission update for %s has no effect: %v", s.spec.Name, err), Level: "warning"})
			continue
		}
		for _, dir := range s.Top.Apply(u) {
			s.callEventHooks("", &wire.DirectoryAddedInput{Directory: dir, Source: "permission_update"}, dir)
		}
		switch {
		case err != nil:
			s.out.Before = append(s.out.Before, &wire.Informational{Content: fmt.Sprintf("The permission update for %s applies to this session only: %v", s.spec.Name, err),
				Level: "warning"})
		case path != "":
			source := map[wire.PermissionDestination]string{wire.DestinationUserSettings: "user_settings", wire.DestinationProjectSettings: "project_settings", wire.DestinationLocalSettings: "local_settings"}[u.Destination]
			s.callEventHooks("", &wire.ConfigChangeInput{Source: source, FilePath: path}, source)
		}
	}
}

// wellFormed reports whether the type, the destination and the behavior of an update are known.
func wellFormed(u *wire.PermissionUpdate) bool {
	switch u.Destination {
	case "", wire.DestinationSession, wire.DestinationCLIArg, wire.DestinationUserSettings, wire.DestinationProjectSettings, wire.DestinationLocalSettings:
	default:
		return false
	}
	switch u.Type {
	case wire.UpdateAddRules, wire.UpdateReplaceRules, wire.UpdateRemoveRules:
		return u.Behavior == wire.BehaviorAllow || u.Behavior == wire.BehaviorAsk || u.Behavior == wire.BehaviorDeny
	case wire.UpdateSetMode:
		return u.Mode != ""
	}
	return u.Type == wire.UpdateAddDirectories || u.Type == wire.UpdateRemoveDirectories
}

// permits reports whether an update of rules or directories allows calls that were not allowed before.
func permits(u *wire.PermissionUpdate) bool {
	switch u.Type {
	case wire.UpdateSetMode, wire.UpdateRemoveDirectories:
		return false
	case wire.UpdateAddRules:
		return u.Behavior == wire.BehaviorAllow
	case wire.UpdateRemoveRules:
		return u.Behavior != wire.BehaviorAllow
	}
	return true
}

// question returns the permission request for the call.
func (s *run) question() *wire.CanUseTool {
	d := s.decision
	rule := d.Rule
	// Without the rule, the host would be asked as well, so it is only one reason. In mode auto, a model would have decided.
	if rule != nil && d.Beside != nil && d.ReasonType == "rule" && s.spec.Name != "WebSearch" && s.mode != wire.ModeAuto {
		d.Path, d.ReasonType = d.Beside.Path, ""
	}
	q := &wire.CanUseTool{ToolName: s.spec.Name, DisplayName: s.spec.Name, Input: s.input, ToolUseID: s.ID,
		BlockedPath: d.Path, DecisionReason: d.Reason, DecisionReasonType: d.ReasonType, PermissionSuggestions: d.Suggestions()}
	var in struct {
		Description string `json:"description"`
		Command     string `json:"command"`
		Pattern     string `json:"pattern"`
		URL         string `json:"url"`
		Query       string `json:"query"`
	}
	json.Unmarshal(s.input, &in)
	q.Description = cmp.Or(in.Description, in.Command, ShortPath(s.Env, pathIn(s.input)), in.Pattern, in.URL, in.Query)
	if sk, ok := s.Tool.(interface{ About(json.RawMessage) string }); ok {
		q.Description = sk.About(s.input)
	}
	q.RequiresUserInteraction = interactive(s.spec.Name)
	// The only reason to ask is that nothing allows the call.
	askOnly := !q.RequiresUserInteraction && s.spec.Name != "Skill" && d.Reason == "" && d.ReasonType == "" && d.Path == ""
	if q.RequiresUserInteraction {
		q.PermissionSuggestions = nil
	}
	if d.Path != "" && s.spec.Name != "Bash" && s.spec.RulesOf != "Bash" && d.ReasonType != "safetyCheck" { // the input names the path
		q.BlockedPath, askOnly = "", pathIn(s.input) != ""
		q.DecisionReasonType, q.DecisionReason = cmp.Or(d.ReasonType, "workingDir"), cmp.Or(d.Reason, "Path is outside allowed working directories")
	}
	if d.ReasonType == "safetyCheck" {
		removal := d.DecidedBy == policy.ByRemoval
		q.BlockedPath, q.ClassifierApprovable, q.SuppressAlwaysAllowRule = "", new(!removal), removal
		if removal {
			q.PermissionSuggestions = []*wire.PermissionUpdate{}
		}
	}
	if m, ok := s.Tool.(*mcp.Tool); ok {
		q.MCPServer, q.DisplayName, askOnly = s.server(), m.DisplayName(), true
	}
	if byRule := rule != nil && d.ReasonType != "hook"; askOnly || byRule {
		q.ServerPolicyAskOnly = new(!byRule)
	}
	switch {
	case rule == nil || d.ReasonType == "hook":
	case d.ReasonType == "rule":
		q.DecisionReasonRuleSource = rule.Source.Layer.ProtocolName()
	default:
		q.MatchedAskRule = &wire.AskRule{Source: rule.Source.Layer.ProtocolName(), ToolName: rule.Tool, RuleContent: rule.Content}
	}
	if d.ReasonType == "hook" {
		q.DecisionReasonHookEvent, q.DecisionReasonHookSource = wire.EventPreToolUse, s.hooks.Source
		if q.DecisionReasonHookSource == "host" {
			q.DecisionReasonHookSource = "settings" // as the official command names it
		}
		q.PermissionSuggestions, q.BlockedPath = nil, "" // another rule or directory would change nothing
	}
	return q
}

// ShortPath formats a path for people: relative to the working directory or to the home, if it
// is below one of them.
func ShortPath(env *tool.Env, path string) string {
	below := func(dir string) (string, bool) {
		rel, err := filepath.Rel(dir, path)
		return rel, err == nil && dir != "" && rel != "." && filepath.IsLocal(rel)
	}
	if !filepath.IsAbs(path) {
		return path
	}
	if rel, ok := below(env.Cwd()); ok {
		return rel
	}
	if rel, ok := below(env.Home); ok {
		return filepath.Join("~", rel)
	}
	return path
}

// recordDecision records the decision about a call and who made it.
func (s *run) recordDecision(d policy.Decision, by string, allowed bool) {
	if s.Rec.Place().Log == nil {
		return
	}
	r := d.Receipt()
	if s.Agent != nil {
		r.AgentID = s.Agent.ID
	}
	r.ToolUseID, r.Hooks, r.Judge, r.By, r.At = s.ID, s.out.hooks, s.judged, by, s.Now().UTC()
	if r.Tool == "" {
		r.Tool, r.Input, r.Cwd = s.Name, s.out.InputOf(s.Call), s.Env.Cwd()
	}
	if r.Behavior == "" && s.out.Result != nil { // the policy did not decide
		r.Reason = s.out.Result.Content.String()
	}
	r.Answer = wire.BehaviorDeny
	switch {
	case allowed:
		r.Answer = wire.BehaviorAllow
	case s.out.Deferred:
		r.Answer = wire.BehaviorDefer
	}
	e := &session.Entry{Type: "parley-receipt", Time: r.At, Fields: recorder.Fields("receipt", r)}
	if allowed && !s.ReadOnly() {
		s.receipt = e // recorded with the intent
		return
	}
	// The decision leads to no effect other than reading files. The result of the call is
	// recorded after it and waits for the disk.
	e.Hasty = !allowed || !slices.ContainsFunc(r.Access, func(a tool.Access) bool { return a.Kind != tool.Read })
	if err := s.Rec.Place().Append(e); err != nil {
		s.Log.Error("a decision could not be recorded", "error", err)
		s.out.Before = append(s.out.Before, &wire.Informational{Content: fmt.Sprintf("The decision about %s could not be recorded: %v", s.Name, err), Level: "warning"})
	}
}
