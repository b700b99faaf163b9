package skill_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/skill"
)

type library map[string]*skill.Skill

func (l library) Find(name string) *skill.Skill { return l[name] }

func (l library) Names() []string {
	var names []string
	for n := range l {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (l library) Text(_ context.Context, name, args string) (string, error) {
	if name == "broken" {
		return "", errors.New("its command failed")
	}
	return "do " + name + " with " + args, nil
}

func (l library) Fork(_ context.Context, call *tool.Call, s *skill.Skill, text string) (string, string, error) {
	if s.Agent == "" {
		return "", "", errors.New("no agent")
	}
	return "a1", s.Agent + " saw: " + text, nil
}

func TestForkedSkill(t *testing.T) {
	tl := skill.New(library{"review": {Name: "review", Dir: "/s", Fork: true, Agent: "helper"}, "lost": {Name: "lost", Fork: true}})
	r, err := tl.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"skill":"review","args":"x"}`), Env: &tool.Env{}})
	if err != nil {
		t.Fatal(err)
	}
	const report = "helper saw: Base directory for this skill: /s\n\ndo review with x"
	if want := (skill.Forked{Success: true, CommandName: "review", Status: "forked", AgentID: "a1", Result: report}); *r.Structured.(*skill.Forked) != want {
		t.Errorf("got %+v, want %+v", r.Structured, want)
	}
	if text := r.Content.String(); len(r.Follow) != 0 || !strings.HasSuffix(text, "Result:\n"+report) {
		t.Errorf("got %q, and %q follows", text, r.Follow)
	}
	if _, err := tl.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"skill":"lost"}`), Env: &tool.Env{}}); err == nil {
		t.Error("the error of the subagent is not reported")
	}
}

func TestSkill(t *testing.T) {
	tl := skill.New(library{"pdf": {Name: "pdf", Dir: "/skills/pdf", AllowedTools: []string{"Read"}}, "broken": {Name: "broken"}})
	call := func(input string) (*tool.Result, error) {
		if err := tool.Validate(tl.Spec(), json.RawMessage(input)); err != nil {
			return nil, err
		}
		return tl.Run(t.Context(), &tool.Call{Input: json.RawMessage(input), Env: &tool.Env{}})
	}
	r, err := call(`{"skill":"/pdf","args":"a b"}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Follow) != 1 || r.Follow[0] != "Base directory for this skill: /skills/pdf\n\ndo pdf with a b" {
		t.Errorf("%q", r.Follow)
	}
	if out := r.Structured.(*skill.Output); !out.Success || out.CommandName != "pdf" || len(out.AllowedTools) != 1 {
		t.Errorf("%+v", out)
	}
	if r, err = call(`{"skill":"pdf","args":"c"}`); err != nil || len(r.Follow) != 2 || !strings.HasPrefix(r.Follow[0], "You loaded the skill pdf before.") || !strings.HasSuffix(r.Follow[1], "with c") {
		t.Errorf("the second time: %v, %+v", err, r)
	}
	if _, err := call(`{"skill":"nope"}`); err == nil || !strings.Contains(err.Error(), "broken, pdf") {
		t.Error(err)
	}
	if _, err := tl.Access(nil, json.RawMessage(`{"skill":"nope"}`)); err == nil {
		t.Error("a person is asked about a skill that does not exist")
	}
	if _, err := call(`{"skill":"broken"}`); err == nil {
		t.Error("a failure is not told")
	}
	if _, err := call(`{"args":"x"}`); err == nil {
		t.Error("a call without a skill passes")
	}
	access, err := tl.Access(nil, json.RawMessage(`{"skill":"/pdf"}`))
	if err != nil || len(access) != 1 || access[0].Name != "pdf" || access[0].Kind != tool.Skill {
		t.Error(access, err)
	}
}
