package policy

import (
	"slices"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// Add adds rules. One that is there already is not added again.
func (p *Policy) Add(rules ...Rule) {
	p.change(func(s *ruleset) {
		for _, r := range rules {
			s.add(r)
		}
	})
}

// Replace puts rules in the place of those there are, for all at once, but for those that
// are to stay.
func (p *Policy) Replace(rules []Rule, stays func(Rule) bool) {
	p.change(func(s *ruleset) {
		old := [][]*Rule{s.deny, s.ask, s.allow}
		s.deny, s.ask, s.allow = nil, nil, nil
		for _, r := range rules {
			s.add(r)
		}
		for _, list := range old {
			for _, r := range list {
				// One that is only on another line is not there twice.
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
	return &s.deny // what is not understood restricts
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

// change makes another set of rules out of the one that is, for all at once.
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

// Update changes the rules as an update of the protocol says: addRules, replaceRules
// and removeRules, of the layer that its destination is. Other updates are not about
// rules and change nothing here. Rules of other layers stay, so a host cannot remove
// what the administrator of the machine wrote.
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

// A Narrowing is what makes a policy narrower than another.
type Narrowing struct {
	Rules []Rule              // more rules; one that allows lets nothing run that did not run before
	Tools []string            // rules that name all that may be used, such as "Read" or "Bash(git diff:*)"; nil means what the parent may
	Mode  wire.PermissionMode // empty means the parent's
}

// Narrow returns the policy of a subagent. It decides as its parent does, at any
// time, and denies or asks in addition: it can never let anything run that the
// parent does not. The mode of a [Request] to it is the parent's.
func (p *Policy) Narrow(n Narrowing) *Policy {
	child := &Policy{parent: p, narrow: n}
	child.Add(n.Rules...)
	return child
}

// decideNarrow decides as the parent does, then again with what narrows it. The
// stricter answer wins.
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
		return second // what needs a wall in the narrower policy runs behind one
	}
	return d
}

// offers reports whether a call is among those that an agent may make at all.
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
