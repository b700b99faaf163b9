package policytest

import (
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// FiftyRules returns rules of all kinds, as many as somebody with many rules has.
func FiftyRules() ([]policy.Rule, error) {
	var rules []policy.Rule
	for _, list := range []struct {
		behavior wire.PermissionBehavior
		texts    []string
	}{
		{wire.BehaviorDeny, []string{"Bash(rm -rf:*)", "Bash(sudo:*)", "Bash(git push --force:*)", "Bash(curl:*)", "Bash(wget:*)", "Bash(ssh:*)", "Bash(dd:*)",
			"Read(.env)", "Read(.env.*)", "Read(~/.ssh/**)", "Read(~/.aws/**)", "Read(//etc/shadow)", "Read(secrets/**)", "Edit(.github/**)", "Edit(//etc/**)",
			"WebFetch(domain:evil.test)", "WebFetch(domain:*.internal)", "mcp__prod"}},
		{wire.BehaviorAsk, []string{"Bash(git push:*)", "Bash(npm publish:*)", "Bash(docker:*)", "Bash(kubectl:*)", "Edit(package.json)", "Edit(go.mod)"}},
		{wire.BehaviorAllow, []string{"Bash(git diff:*)", "Bash(git log:*)", "Bash(git add:*)", "Bash(git commit:*)", "Bash(git status)", "Bash(npm run test:*)",
			"Bash(npm run build)", "Bash(npm run lint:*)", "Bash(go test:*)", "Bash(go build:*)", "Bash(go vet:*)", "Bash(make:*)",
			"Bash(cargo test:*)", "Bash(pytest:*)",
			"Bash(eslint:*)", "Bash(tsc:*)", "Bash(ls:*)", "Bash(mkdir:*)", "Bash(touch:*)", "Edit(src/**)", "Edit(docs/**)", "Read(//usr/share/**)",
			"WebFetch(domain:go.dev)", "WebFetch(domain:docs.rs)", "mcp__docs", "Skill(review)"}},
	} {
		for _, text := range list.texts {
			r, err := policy.Parse(text, list.behavior, policy.Source{Layer: policy.LayerUser})
			if err != nil {
				return nil, err
			}
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// FiveCommands are everyday commands, which [FiftyRules] allow.
var FiveCommands = []string{
	"git diff HEAD -- engine/policy/policy.go", "go test -run TestX -count=1 ./engine/...", "ls -la src", "npm run test 2>&1 | tail -20",
	"cat src/main.go | grep -n func",
}

// CostRequest returns the request for one of them, in a directory.
func CostRequest(command, dir string) *policy.Request {
	return &policy.Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: command}},
		Roots: []string{dir}, Home: "/home/u", ReadWall: true}
}
