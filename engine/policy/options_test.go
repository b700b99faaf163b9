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
		{"cloc", "cloc --out=x ."}, {"cloc", "cloc --extract-with='x >FILE<' a.zip"}, {"cloc", "cloc --vcs=./evil"}, {"scc", "scc -o x"}, {"scc", "scc --format-multi csv:/x"},
		{"bat", "bat --generate-config-file"}, {"bat", "bat cache --build --target /x"}, {"ack", "ack --files-from=x y"}, {"ugrep", "ugrep --view=./evil x"},
		{"pcre2grep", "pcre2grep '(?C\"./evil\")x' a"}, {"pcre2grep", "pcre2grep -e '(?C\"./evil\")x' a"}, {"nvidia-smi", "nvidia-smi -f x"}, {"lspci", "lspci -Q"},
		{"nm", "nm --plugin ./x.so a.o"}, {"nm", "nm --plugin=./x.so a.o"}, {"rsync", "rsync -f '. /etc/shadow' a b"}, {"tokei", "tokei --unknown=/x"}, {"eza", "eza --unknown=~/x"},
		{"rustc", "rustc @args"}, {"java", "java @args"}, {"mypy", "mypy @args"}, {"tsc", "tsc @args"}, {"protoc", "protoc @args"}, {"pytest", "pytest @args"}, {"dotnet build", "dotnet build @args"},
		{"just", "just 'x=;id' build"}, {"just", "just --set x ';id' build"}, {"just build", "just build ';id'"}, {"rake", "rake RUBYOPT=-r./evil test"}, {"make", "make 'x;id'"},
		{"cmake", "cmake -DCMAKE_PROJECT_INCLUDE=/x/y.cmake ."}, {"cmake", "cmake -D CMAKE_TOOLCHAIN_FILE=../x.cmake ."}, {"cmake", "cmake '-DCMAKE_C_FLAGS=-wrapper ./evil' ."},
		{"prettier", "prettier --parser ./evil.js a"}, {"mocha", "mocha --ui ./evil.js"}, {"mocha", "mocha --spec /x/evil.js"}, {"rspec", "rspec -P /x/evil.rb"}, {"cargo fmt", "cargo fmt -- /x/y.rs"},
		{"uv pip", "uv pip compile -o /x a"}, {"uv export", "uv export --output-file=/x"}, {"pip config", "pip config --editor ./evil edit"}, {"pip download", "pip download -d /x y"},
		{"pip list", "pip list --proxy http://evil"}, {"zstdcat", "zstdcat -o x a.zst"}, {"xzcat", "xzcat --files=x"}, {"cp", "cp -t .git/hooks pre-commit"},
		{"git bisect", "git bisect view archive -o /x HEAD"}, {"git send-pack", "git send-pack --receive-pack=evil x"}, {"git merge-file", "git merge-file .git/config a b"},
		{"git pack-objects", "git pack-objects /x/p"},
		{"ansible-playbook", "ansible-playbook -i evil site.yml"}, {"ansible-playbook", "ansible-playbook --inv evil site.yml"}, {"ansible-playbook", "ansible-playbook site.yml -e @evil"},
	} {
		p := New(Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: c.rule + ":*"})
		req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: c.command}}, Roots: []string{"/w"}, Home: "/h", Mode: wire.ModeDefault}
		if d := p.Decide(req); d.Behavior != wire.BehaviorAsk {
			t.Errorf("the rule %s: %s: %s (%s)", c.rule, c.command, d.Behavior, d.Reason)
		}
	}
	for _, c := range []struct{ rule, command string }{
		{"cloc", "cloc --by-file --json src"}, {"tokei", "tokei --sort=code src"}, {"ls", "ls --time-style=long-iso"}, {"nm", "nm -D a.so"}, {"just", "just build"}, {"just", "just test x=1"},
		{"rake", "rake test TEST=a.rb"}, {"make", "make build/a.o"}, {"cmake", "cmake -DCMAKE_BUILD_TYPE=Release -DX=ON -DCMAKE_INSTALL_PREFIX=/usr/local -B build"},
		{"cmake", "cmake -DCMAKE_TOOLCHAIN_FILE=cmake/arm.cmake -B build"}, {"prettier", "prettier --parser babel a.js"}, {"cargo fmt", "cargo fmt -- --check"}, {"mocha", "mocha --ui tdd"},
		{"pip list", "pip list --format=json"}, {"zstdcat", "zstdcat a.zst"}, {"git merge-file", "git merge-file -p a b c"}, {"pcre2grep", "pcre2grep -r x src"}, {"cp", "cp -t sub a b"},
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
