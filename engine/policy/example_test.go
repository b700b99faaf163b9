package policy_test

import (
	"fmt"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

func ExamplePolicy_Decide() {
	var p policy.Policy
	for text, behavior := range map[string]wire.PermissionBehavior{"Bash(git diff:*)": wire.BehaviorAllow, "Bash(rm:*)": wire.BehaviorDeny} {
		r, err := policy.Parse(text, behavior, policy.Source{File: "an example"})
		if err != nil {
			fmt.Println(err)
		}
		p.Add(r)
	}
	bash := &tool.Spec{Name: "Bash"}
	for _, command := range []string{"git diff HEAD", "git difftool", "git diff; env rm -rf .", "git status"} {
		d := p.Decide(&policy.Request{Tool: bash, Access: []tool.Access{{Kind: tool.Execute, Command: command}}})
		fmt.Printf("%-24s %s\n", command, d.Behavior)
	}
	// Output:
	// git diff HEAD            allow
	// git difftool             ask
	// git diff; env rm -rf .   deny
	// git status               ask
}
