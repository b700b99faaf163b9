package policy

import (
	"slices"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// Add adds rules. It skips those that exist already.
func (p *Policy) Add(rules ...Rule) {
	p.change(func(s *ruleset) {
		for _, r := range rules {
			s.add(r)
		}
	})
}

// Replace atomically replaces all rules, except those for which stays returns true.
func (p *Policy) Replace(rules []Rule, stays func(Rule) bool) {
	p.change(func(s *ruleset) {
		old := [][]*Rule{s.deny, s.ask, s.allow}
		s.deny, s.ask, s.allow = nil, nil, nil
		for _, r := range rules {
			s.add(r)
		}
		for _, list := range old {
			for _, r := range list {
				// A rule that has only moved to another line is not added twice.
				again := slices.ContainsFunc(*s.list(r.Behavior), func(have *Rule) bool {
					return have.Tool == r.Tool && have.Content == r.Content && have.Source.Layer == r.Source.Layer && have.Source.File == r.Source.File
				})
				if !again && stays(*r) {
					s.add(*r)
				}
			}
		}
	})
}

func (s *ruleset) list(b wire.PermissionBehavior) *[]*Rule {
	switch b {
	case wire.BehaviorAllow:
		return &s.allow
	case wire.BehaviorAsk:
		return &s.ask
	}
	return &s.deny // an unknown behavior restricts
}

func (s *ruleset) add(r Rule) {
	if r.Content == "*" || r.Content == ":*" {
		r.Content = ""
	}
	list := s.list(r.Behavior)
	if r.Tool == "" || slices.ContainsFunc(*list, func(have *Rule) bool {
		return have.Tool == r.Tool && have.Content == r.Content && have.Source == r.Source
	}) {
		return
	}
	if r.pattern = nil; r.Content != "" && !isFileTool(r.Tool) {
		r.pattern = newCommandPattern(r.Content)
	}
	*list = append(*list, &r)
}

// change atomically replaces the set of rules by a modified copy.
func (p *Policy) change(f func(*ruleset)) {
	for {
		old := p.set.Load()
		next := &ruleset{}
		if old != nil {
			next.deny, next.ask, next.allow = slices.Clone(old.deny), slices.Clone(old.ask), slices.Clone(old.allow)
		}
		f(next)
		if p.set.CompareAndSwap(old, next) {
			return
		}
	}
}

// Update applies an update of the protocol: addRules, replaceRules and removeRules, in
// the layer of its destination. Other updates are not about rules and have no effect
// here. Rules of other layers stay, so a host cannot remove those of the administrator.
func (p *Policy) Update(u *wire.PermissionUpdate) {
	layer := LayerOf(u.Destination)
	if layer == LayerManaged {
		return
	}
	content := func(r *wire.PermissionRule) string {
		if r.RuleContent == "*" || r.RuleContent == ":*" {
			return ""
		}
		return r.RuleContent
	}
	p.change(func(s *ruleset) {
		list := s.list(u.Behavior)
		switch u.Type {
		case wire.UpdateReplaceRules:
			*list = slices.DeleteFunc(*list, func(r *Rule) bool { return r.Source.Layer == layer })
			fallthrough
		case wire.UpdateAddRules:
			for _, r := range u.Rules {
				s.add(Rule{Behavior: u.Behavior, Tool: r.ToolName, Content: content(r), Source: Source{Layer: layer}})
			}
		case wire.UpdateRemoveRules:
			for _, r := range u.Rules {
				*list = slices.DeleteFunc(*list, func(have *Rule) bool {
					return have.Source.Layer == layer && have.Tool == r.ToolName && have.Content == content(r)
				})
			}
		}
	})
}

// A Narrowing makes a policy narrower than its parent.
type Narrowing struct {
	Rules []Rule              // additional rules; an allow rule cannot allow anything that the parent does not
	Tools []string            // rules for everything that may be used, such as "Read" or "Bash(git diff:*)"; nil means the same as the parent
	Mode  wire.PermissionMode // empty means the parent's
}

// Narrow returns the policy of a subagent. It follows the current decisions of its
// parent, and denies or asks in addition: it can never allow anything that the parent
// does not. The mode of a [Request] to it is the parent's.
func (p *Policy) Narrow(n Narrowing) *Policy {
	child := &Policy{parent: p, narrow: n}
	child.Add(n.Rules...)
	return child
}

// decideNarrow decides as the parent does, and again with the narrowing. The stricter
// decision wins.
func (p *Policy) decideNarrow(req *Request) Decision {
	d := p.parent.Decide(req)
	if d.Behavior == wire.BehaviorDeny {
		return d
	}
	if p.narrow.Tools != nil && !p.narrow.offers(req) {
		return Decision{Behavior: wire.BehaviorDeny, ReasonType: "rule", DecidedBy: ByRule, req: req, seen: d.seen,
			Reason: "this agent may not use " + req.Tool.Name + " so"}
	}
	own := p.load()
	if p.narrow.Mode == "" && own.deny == nil && own.ask == nil {
		return d
	}
	again := *req
	if p.narrow.Mode != "" {
		again.Mode = p.narrow.Mode
	}
	set := &ruleset{}
	for q := p; q != nil; q = q.parent {
		s := q.load()
		set.deny, set.ask, set.allow = append(set.deny, s.deny...), append(set.ask, s.ask...), append(set.allow, s.allow...)
	}
	second := decide(set, &again)
	if stricter(second.Behavior, d.Behavior) || second.Behavior == d.Behavior && second.DecidedBy.Place() != tool.Anywhere && d.DecidedBy != ByProof {
		return second // a command that needs a wall in the narrower policy runs behind one
	}
	return d
}

// offers reports whether an agent may make a call at all.
func (n *Narrowing) offers(req *Request) bool {
	set := &ruleset{}
	for _, text := range n.Tools {
		r, err := Parse(text, wire.BehaviorAllow, Source{Layer: LayerHost})
		if err != nil {
			continue
		}
		if r.Content == "" && r.names(req.Tool) || r.Tool == "*" {
			return true
		}
		set.add(r)
	}
	j := newJudgement(req, set)
	return len(req.Access) > 0 && j.allowed() != nil
}

// stricter reports whether a is stricter than b.
func stricter(a, b wire.PermissionBehavior) bool { return rank(a) > rank(b) }

func rank(b wire.PermissionBehavior) int {
	switch b {
	case wire.BehaviorAllow:
		return 0
	case wire.BehaviorAsk:
		return 1
	}
	return 2
}
