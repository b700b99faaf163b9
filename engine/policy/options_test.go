package policy

import (
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// TestRuleCoversNoDangerousOption checks that an allow rule for a program, or a subcommand
// of it, does not cover an option with which the program runs, writes or sends something
// else. An option that only starts like a harmless one is not that one.
func TestRuleCoversNoDangerousOption(t *testing.T) {
	for _, c := range []struct{ rule, command string }{
		{"prettier", "prettier --config evil.js --write a.js"}, {"pytest", "pytest --conf=evil"}, {"vitest", "vitest --run --test=x"},
		{"terraform plan", "terraform plan -out=/etc/x"}, {"terraform plan", "terraform -chdir=/x plan"}, {"terraform init", "terraform init -plugin-dir=x"},
		{"helm template", "helm template . --post-renderer ./evil"}, {"helm list", "helm list --kubeconfig=evil"},
		{"dotnet test", "dotnet test -s evil.runsettings"}, {"dotnet build", "dotnet build -p:CustomBeforeMicrosoftCommonTargets=evil"},
		{"swift test", "swift test --package-path /x"}, {"swift build", "swift build -Xswiftc -load"},
		{"poetry run", "poetry run -C /x pytest"}, {"uv run", "uv run --with evil pytest"}, {"pip list", "pip list --log /etc/x"}, {"pip install", "pip install --target /x y"},
		{"webpack", "webpack -c evil.js"}, {"vite build", "vite build --config evil.js"}, {"ctest", "ctest -S evil.cmake"}, {"meson test", "meson test --wrapper=./evil"},
		{"kubectl get", "kubectl get pods --kubeconfig evil"}, {"kubectl get", "kubectl get pods --kubeconfig=evil"}, {"kubectl", "kubectl --server=evil get x"},
		{"docker build", "docker build -o / ."}, {"docker build", "docker build --output=/etc ."}, {"docker build", "docker build -otype=local,dest=/x ."},
		{"docker run", "docker run -v /:/h x"}, {"docker run", "docker run -v/:/h x"}, {"docker run", "docker run -itv /:/h x"}, {"docker run", "docker run --mount type=bind,src=/,dst=/h x"},
		{"podman run", "podman run --volume=/:/h x"}, {"docker run", "docker run --privileged x"}, {"docker ps", "docker -H tcp://evil ps"},
		{"bun test", "bun test --preload ./evil.ts"}, {"bun run", "bun run -r ./evil.ts a.ts"}, {"deno test", "deno test --import-map=evil.json"}, {"deno run", "deno run --allow-all a.ts"},
		{"deno run", "deno run -A a.ts"}, {"deno test", "deno test --config evil.json"},
		{"ansible-playbook", "ansible-playbook -i evil site.yml"}, {"ansible-playbook", "ansible-playbook --inv evil site.yml"}, {"ansible-playbook", "ansible-playbook site.yml -e @evil"},
	} {
		p := New(Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: c.rule + ":*"})
		req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: c.command}}, Roots: []string{"/w"}, Home: "/h", Mode: wire.ModeDefault}
		if d := p.Decide(req); d.Behavior != wire.BehaviorAsk {
			t.Errorf("the rule %s: %s: %s (%s)", c.rule, c.command, d.Behavior, d.Reason)
		}
	}
	for _, c := range []struct{ rule, command string }{
		{"prettier", "prettier --check src"}, {"terraform plan", "terraform plan -input=false"}, {"helm template", "helm template ."}, {"dotnet test", "dotnet test --no-build"},
		{"swift test", "swift test --parallel"}, {"poetry run pytest", "poetry run pytest -q"}, {"uv run pytest", "uv run pytest -q"}, {"pip list", "pip list --outdated"},
		{"webpack", "webpack --mode production"}, {"vite build", "vite build"}, {"meson test", "meson test -v"},
		{"kubectl get", "kubectl get pods -n x -o json"}, {"docker build", "docker build -t app ."}, {"docker run", "docker run --rm -it node:20 node -v"}, {"docker ps", "docker ps -a"},
		{"bun test", "bun test --watch"}, {"deno test", "deno test --quiet"}, {"ansible-playbook", "ansible-playbook site.yml --check -v"}, {"ansible-playbook", "ansible-playbook site.yml --limit web"},
	} {
		p := New(Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: c.rule + ":*"})
		req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: c.command}}, Roots: []string{"/w"}, Home: "/h", Mode: wire.ModeDefault}
		if d := p.Decide(req); d.Behavior != wire.BehaviorAllow {
			t.Errorf("the rule %s: %s: %s (%s), want allow", c.rule, c.command, d.Behavior, d.Reason)
		}
	}
}

// TestRuleWithoutWords checks that a rule without a word in its content matches every command if it ends
// with :*, and none otherwise.
func TestRuleWithoutWords(t *testing.T) {
	for content, want := range map[string]wire.PermissionBehavior{" ": wire.BehaviorAllow, " :*": wire.BehaviorDeny, "# 'x'": wire.BehaviorAllow} {
		rule, err := Parse("Bash("+content+")", wire.BehaviorDeny, Source{})
		if err != nil {
			t.Fatal(err)
		}
		req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: "ls $x"}}, Roots: []string{t.TempDir()}, Mode: wire.ModeBypassPermissions}
		if d := New(rule).Decide(req); d.Behavior != want && !(want == wire.BehaviorDeny && d.Behavior == wire.BehaviorAsk) {
			t.Errorf("Bash(%s): %s (%s), want %s", content, d.Behavior, d.Reason, want)
		}
	}
}
